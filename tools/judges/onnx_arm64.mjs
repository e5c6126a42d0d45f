// Runs a directory of gq in ONNX Runtime, on x64 or for arm64 under emulation: onnx_arm64.py has the commands.
//
//     node onnx_arm64.mjs [--pack] [--codes PREFIX] [--set KEY=VALUE] DIR
//
// Prints a line of JSON with the CPU time to load in ms, the private memory that the session added and the peak of the
// process in MB, and a hash of the logits' bits. --pack adds the hashes of the weights that the runtime packed, as
// internal/job/toonnx/testdata/prepacked.json has them; --codes the mean KL divergence from the logits that
// judges/logits wrote to PREFIX.f32. --set sets an option of the session, such as session.disable_prepacking=1.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import {createRequire} from "node:module";
import {parseArgs} from "node:util";

const ort = createRequire(process.cwd() + "/")("onnxruntime-node");
const {values: flags, positionals: [dir]} = parseArgs({allowPositionals: true,
    options: {pack: {type: "boolean"}, codes: {type: "string"}, set: {type: "string", multiple: true, default: []}}});
const settings = {session: {}};
for (const [, group, key, value] of flags.set.map(s => /^(\w+)\.(\w+)=(.*)$/.exec(s))) settings[group] = {...settings[group], [key]: value};
const file = path.join(dir, JSON.parse(fs.readFileSync(path.join(dir, "genai_config.json"))).model.decoder.filename);

const memory = name => Math.round(parseInt(new RegExp(`${name}:\\s+(\\d+)`).exec(fs.readFileSync("/proc/self/status", "utf8"))[1]) / 1024);
const options = {intraOpNumThreads: 1, logSeverityLevel: 3, extra: settings};
const out = {arch: process.arch, file};

const before = memory("RssAnon"), start = process.cpuUsage();
const session = await ort.InferenceSession.create(file, options);
out.load = Math.round(Object.values(process.cpuUsage(start)).reduce((a, b) => a + b) / 1000);
out.private = memory("RssAnon") - before;
out.peak = memory("VmHWM");

async function logits(ids) {
    const integers = value => new ort.Tensor("int64", BigInt64Array.from(ids, id => BigInt(value(id))), [1, ids.length]);
    const feeds = {input_ids: integers(id => id), attention_mask: integers(() => 1)};
    for (const m of session.inputMetadata) {
        if (m.name.startsWith("past_key_values.")) feeds[m.name] = new ort.Tensor("float32", new Float32Array(0), [1, m.shape[1], 0, m.shape[3]]);
    }
    return (await session.run(feeds)).logits.data;
}
const data = await logits([1, 5, 9, 300, 17, 88, 40, 2]);
out.logits = new Uint32Array(data.buffer, data.byteOffset, data.length).reduce((h, v) => Math.imul(h, 31) + v | 0, 0);

if (flags.codes) {
    const {windows} = JSON.parse(fs.readFileSync(flags.codes + ".json", "utf8"));
    const bytes = fs.readFileSync(flags.codes + ".f32");
    const codes = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4), vocabulary = codes.length / windows.flat().length;
    const logSum = row => Math.log(row.reduce((sum, v) => sum + Math.exp(v - row[0]), 0)) + row[0];
    let sum = 0, at = 0;
    for (const window of windows) {
        const mine = await logits(window);
        for (let i = 0; i < mine.length; i += vocabulary, at += vocabulary) {
            const p = codes.subarray(at, at + vocabulary), q = mine.subarray(i, i + vocabulary), difference = logSum(q) - logSum(p), of = logSum(p);
            p.forEach((v, j) => sum += Math.exp(v - of) * (v - q[j] + difference));
        }
    }
    out.kl = Number((sum / windows.flat().length).toPrecision(4));
}

if (flags.pack) {
    const temporary = fs.mkdtempSync(path.join(os.tmpdir(), "gq-onnx-"));
    const model = path.join(temporary, "packed.onnx");
    await ort.InferenceSession.create(file, {
        ...options, optimizedModelFilePath: model, graphOptimizationLevel: "basic",
        extra: {...settings, session: {...settings.session, save_external_prepacked_constant_initializers: "1", optimized_model_external_initializers_file_name: "packed.data"}},
    });
    // A tensor's name precedes its external data.
    const names = /([\w.]+\.codes)(?:(?!\.codes)[^])*?MatMulNBits\+(\d+)\|/g;
    out.packed = Object.fromEntries([...fs.readFileSync(model, "latin1").matchAll(names)].map(m => [m[1], m[2]]));
    fs.rmSync(temporary, {recursive: true});
}
console.log(JSON.stringify(out));
process.exit(0);
