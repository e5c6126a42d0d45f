// Compares ONNX Runtime's logits from a directory of gq with gq's own:
//
//	node onnx_judge.mjs [--int8] DIR LOGITS [LOGITS...]
//
// LOGITS.json and LOGITS.f32 are files of tools/judges/logits. Without --int8 a copy of the graph
// computes in float32 (accuracy_level 0). Each window runs at once, then in pieces with a past, so
// that rotations and windows of attention are seen at positions behind the first. Prints a line of
// JSON: the largest difference as a part of the largest logit, and the mean KL divergence in nats.
// The package onnxruntime-node is looked for beside the directory in NODE_MODULES.
import { createRequire } from 'node:module'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'

const require = createRequire(path.join(process.env.NODE_MODULES ?? process.cwd(), 'package.json'))
const ort = require('onnxruntime-node')

const args = process.argv.slice(2)
const int8 = args[0] === '--int8'
if (int8) args.shift()
const [dir, ...lists] = args

// The bytes of the attribute accuracy_level (field 1) with the integer 4 (field 3).
const accuracy = Buffer.concat([Buffer.from([0x0a, 14]), Buffer.from('accuracy_level'), Buffer.from([0x18, 4])])

function graph () {
  const { decoder } = JSON.parse(fs.readFileSync(path.join(dir, 'genai_config.json'))).model
  const file = path.join(dir, decoder.filename)
  if (int8) return { decoder, file }
  const copy = fs.mkdtempSync(path.join(os.tmpdir(), 'gq-onnx-'))
  process.on('exit', () => fs.rmSync(copy, { recursive: true }))
  for (const name of fs.readdirSync(path.dirname(file))) fs.copyFileSync(path.join(path.dirname(file), name), path.join(copy, name))
  const to = path.join(copy, path.basename(file))
  const model = fs.readFileSync(to)
  for (let at = 0; (at = model.indexOf(accuracy, at)) >= 0; at += accuracy.length) model[at + accuracy.length - 1] = 0
  fs.chmodSync(to, 0o644)
  fs.writeFileSync(to, model)
  return { decoder, file: to }
}

function feeds (ids, total, past) {
  const int64 = (n, value) => new ort.Tensor('int64', BigInt64Array.from({ length: n }, (_, i) => BigInt(value(i))), [1, n])
  return { ...past, input_ids: int64(ids.length, i => ids[i]), attention_mask: int64(total, () => 1) }
}

function empty (session) {
  const past = {}
  for (const m of session.inputMetadata) {
    if (m.name.startsWith('past_key_values.')) past[m.name] = new ort.Tensor('float32', new Float32Array(0), [1, m.shape[1], 0, m.shape[3]])
  }
  return past
}

function next (outputs) {
  const past = {}
  for (const [name, value] of Object.entries(outputs)) {
    if (name.startsWith('present.')) past[name.replace('present.', 'past_key_values.')] = value
  }
  return past
}

// run returns the logits of a window, whose pieces end at the given lengths.
async function run (session, ids, ends) {
  const parts = []
  let past = empty(session)
  let from = 0
  for (const end of ends) {
    const out = await session.run(feeds(ids.slice(from, end), end, past))
    parts.push(out.logits.data)
    past = next(out)
    from = end
  }
  return parts
}

function probabilities (row) {
  const most = row.reduce((a, b) => Math.max(a, b), -Infinity)
  let sum = 0
  const p = Float64Array.from(row, v => Math.exp(v - most))
  for (const v of p) sum += v
  return p.map(v => v / sum)
}

const { file } = graph()
const session = await ort.InferenceSession.create(file, { logSeverityLevel: 3, intraOpNumThreads: 1 })
for (const list of lists) {
  const { windows } = JSON.parse(fs.readFileSync(list + '.json'))
  const raw = fs.readFileSync(list + '.f32')
  const want = new Float32Array(raw.buffer, raw.byteOffset, raw.length / 4)
  const vocab = want.length / windows.reduce((n, w) => n + w.length, 0)
  const result = { dir, logits: list, activations: int8 ? 'int8' : 'float32', tokens: 0, difference: 0, stepwise: 0, kl: 0 }
  const largest = want.reduce((a, b) => Math.max(a, Math.abs(b)), 0)
  let row = 0
  for (const [w, ids] of windows.entries()) {
    const n = ids.length
    // A prompt of a third, and then single tokens: one window is enough for that.
    const ways = { difference: [n] }
    if (w === 0) ways.stepwise = [Math.ceil(n / 3), ...Array.from({ length: n - Math.ceil(n / 3) }, (_, i) => Math.ceil(n / 3) + 1 + i)]
    for (const [way, ends] of Object.entries(ways)) {
      const got = Float32Array.from((await run(session, ids, ends)).flatMap(p => Array.from(p)))
      for (let i = 0; i < got.length; i++) {
        const d = Math.abs(got[i] - want[row * vocab + i]) / largest
        if (!(d <= result[way])) result[way] = d
      }
      if (way !== 'difference') continue
      for (let t = 0; t < n; t++) {
        const p = probabilities(want.subarray((row + t) * vocab, (row + t + 1) * vocab))
        const q = probabilities(got.subarray(t * vocab, (t + 1) * vocab))
        p.forEach((v, i) => { if (v > 0) result.kl += v * Math.log(v / q[i]) })
      }
    }
    row += n
  }
  result.tokens = row
  result.kl /= row
  console.log(JSON.stringify(result))
}
