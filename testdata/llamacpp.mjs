// Runs GGUF files in llama.cpp, for TestLlamaCpp. Each line of the input is a request in JSON, each line of the
// output its answer:
//
//     {"model": PATH, "texts": [TEXT ...], "sequences": [[ID ...] ...], "greedy": [ID ...], "count": N}
//     {"tokens": [[ID ...] ...], "bos": BOOL, "probabilities": [[[P ...] ...] ...], "greedy": [ID ...]}
//
// A request without sequences and greedy loads the vocabulary only.
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";
import readline from "node:readline";

// The package lies in the folder that the command line names, not beside this file.
const require = createRequire(process.argv[2] + "/");
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(require.resolve("node-llama-cpp")));
const llama = await getLlama({gpu: false, build: "never", progressLogs: false, logLevel: LlamaLogLevel.error, maxThreads: 1});

async function answer(request) {
    const vocabOnly = !request.sequences && !request.greedy;
    const model = await llama.loadModel({modelPath: request.model, useMmap: true, vocabOnly});
    try {
        const out = {
            tokens: (request.texts ?? []).map(text => Array.from(model.tokenize(text, true))),
            bos: model.tokens.shouldPrependBosToken,
        };
        if (vocabOnly) return out;
        const context = await model.createContext({
            contextSize: 256, batchSize: 256, sequences: 1, threads: 1, flashAttention: false,
            experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32",
        });
        const sequence = context.getSequence();
        out.probabilities = [];
        for (const ids of request.sequences ?? []) {
            await sequence.clearHistory();
            const steps = await sequence.controlledEvaluate(ids.map(id => [id, {generateNext: {probabilities: true}}]));
            out.probabilities.push(steps.map(({next}) => {
                const p = [];
                for (const [id, value] of next.probabilities) p[id] = value;
                return p;
            }));
        }
        if (request.greedy) {
            await sequence.clearHistory();
            out.greedy = [];
            for await (const id of sequence.evaluate(request.greedy, {temperature: 0})) {
                out.greedy.push(id);
                if (out.greedy.length >= request.count) break;
            }
        }
        await context.dispose();
        return out;
    } finally {
        await model.dispose();
    }
}

for await (const line of readline.createInterface({input: process.stdin})) {
    let out;
    try {
        out = await answer(JSON.parse(line));
    } catch (error) {
        out = {error: String(error)};
    }
    process.stdout.write(JSON.stringify(out) + "\n");
}
process.exit(0);
