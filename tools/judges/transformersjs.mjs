// Continues a prompt greedily in transformers.js: node transformersjs.mjs PACKAGES DIR COUNT < IDS prints the new ids.
// PACKAGES is where npm installed @huggingface/transformers, IDS and the output are lists in JSON.
import fs from "node:fs";
import path from "node:path";
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

const [packages, dir, count] = process.argv.slice(2);
const entry = createRequire(path.resolve(packages) + "/").resolve("@huggingface/transformers");
const {AutoModelForCausalLM, Tensor, env} = await import(pathToFileURL(entry));
env.allowRemoteModels = false;
env.localModelPath = path.dirname(path.resolve(dir));
const ids = JSON.parse(fs.readFileSync(0, "utf8"));
const model = await AutoModelForCausalLM.from_pretrained(path.basename(dir));
const integers = value => new Tensor("int64", BigInt64Array.from(ids, value), [1, ids.length]);
const out = await model.generate({
    input_ids: integers(i => BigInt(i)), attention_mask: integers(() => 1n),
    max_new_tokens: Number(count), min_new_tokens: Number(count), do_sample: false, repetition_penalty: 1,
});
console.log(JSON.stringify(Array.from(out.data, Number).slice(ids.length)));
