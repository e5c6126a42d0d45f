// The examples of docs/SERVE.md, word for word but for the port: those with curl, and the one of OpenAI's client.
// $GQ_DOCS is the directory docs, if this is not run in the repository.
import assert from "node:assert/strict"
import { spawnSync } from "node:child_process"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { after, before, test } from "node:test"
import { models, patience, start } from "./server.mjs"

const docs = process.env.GQ_DOCS ?? fileURLToPath(new URL("../../../docs", import.meta.url))
const text = readFileSync(join(docs, "SERVE.md"), "utf8")
const address = "http://127.0.0.1:8080"
const blocks = (language, start) => [...text.matchAll(/^```(\w+)\n([^]*?)^```/gm)].filter((m) => m[1] === language && m[2].split("\n").some((line) => line.startsWith(start)) && m[2].includes(address)).map((m) => m[2])
let server
before(async () => { server = await start(models[0], "--alias", "model") })
after(() => server.stop())

// run runs a program with the example as its input, and returns what it writes.
function run(program, args, example) {
	const { status, stdout, stderr } = spawnSync(program, args, { input: example.replaceAll(address, server.url), encoding: "utf8", timeout: patience })
	assert.equal(status, 0, stderr)
	return stdout
}

for (const [i, example] of blocks("sh", "curl ").entries()) {
	test(`example ${i + 1} with curl`, () => {
		const out = run("sh", ["-e"], example)
		const answers = out.startsWith("data: ") ? out.trim().split("\n\n").map((e) => e.replace(/^data: /, "")) : [out]
		if (answers.length > 1) assert.equal(answers.pop(), "[DONE]")
		for (const answer of answers) {
			const { error, object } = JSON.parse(answer)
			assert.equal(error, undefined)
			assert.match(object, /^(chat\.completion|chat\.completion\.chunk|text_completion|list)$/)
		}
	})
}

test("the example of OpenAI's client", () => {
	const [example, ...more] = blocks("js", "import OpenAI")
	assert.ok(example && !more.length)
	assert.ok(run("node", ["--input-type=module"], example).trim().length > 20)
})

test("there are examples with curl", () => assert.ok(blocks("sh", "curl ").length >= 3))
