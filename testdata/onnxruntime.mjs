// Runs graphs in ONNX Runtime, for TestONNXRuntime. Each line of the input is a request in JSON, each line of the
// output its answer:
//
//     {"model": PATH, "float32": BOOL, "sequences": [[ID ...] ...], "prompt": N}
//     {"logits": [[L ...] ...]}
//
// float32 runs a copy of the graph, beside the graph, whose kernels do not quantize activations. The logits of a
// sequence are those of all positions, one behind the other. The first prompt ids of a sequence run at once (all of
// them, if prompt is 0), each further one alone, with the keys and values before it.
import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";
import {createRequire} from "node:module";

// The package lies in the folder that the command line names, not beside this file.
const ort = createRequire(process.argv[2] + "/")("onnxruntime-node");

// The bytes of the attribute accuracy_level (field 1) with the integer 4 (field 3).
const accuracy = Buffer.concat([Buffer.from([0x0a, 14]), Buffer.from("accuracy_level"), Buffer.from([0x18, 4])]);

async function open(request) {
    const options = {logSeverityLevel: 3, intraOpNumThreads: 1};
    if (!request.float32) return ort.InferenceSession.create(request.model, options);
    const copy = path.join(path.dirname(request.model), "float32.onnx");
    const bytes = fs.readFileSync(request.model);
    for (let at = 0; (at = bytes.indexOf(accuracy, at)) >= 0;) {
        at += accuracy.length;
        bytes[at - 1] = 0;
    }
    fs.writeFileSync(copy, bytes);
    try {
        return await ort.InferenceSession.create(copy, options);
    } finally {
        fs.unlinkSync(copy);
    }
}

const integers = (n, value) => new ort.Tensor("int64", BigInt64Array.from({length: n}, (_, i) => BigInt(value(i))), [1, n]);

async function run(session, ids, prompt) {
    let past = {};
    for (const m of session.inputMetadata) {
        if (m.name.startsWith("past_key_values.")) past[m.name] = new ort.Tensor("float32", new Float32Array(0), [1, m.shape[1], 0, m.shape[3]]);
    }
    const logits = [];
    for (let from = 0, end = prompt || ids.length; from < ids.length; from = end++) {
        const piece = ids.slice(from, end);
        const outputs = await session.run({...past, input_ids: integers(piece.length, i => piece[i]), attention_mask: integers(end, () => 1)});
        logits.push(...outputs.logits.data);
        past = {};
        for (const [name, value] of Object.entries(outputs)) {
            if (name.startsWith("present.")) past[name.replace("present.", "past_key_values.")] = value;
        }
    }
    return logits;
}

async function answer(request) {
    const session = await open(request);
    try {
        const logits = [];
        for (const ids of request.sequences) logits.push(await run(session, ids, request.prompt ?? 0));
        return {logits};
    } finally {
        await session.release();
    }
}

for await (const line of readline.createInterface({input: process.stdin})) {
    let out;
    try {
        out = await answer(JSON.parse(line));
    } catch (error) {
        out = {error: String(error)};
    }
    console.log(JSON.stringify(out));
}
