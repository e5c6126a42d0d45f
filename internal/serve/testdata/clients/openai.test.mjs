// The official client of OpenAI talks to gq serve.
import assert from "node:assert/strict"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { after, before, test } from "node:test"
import OpenAI from "openai"
import { models, run, start } from "./server.mjs"

const prompt = "It was a dark night, and the old man"
const question = [{ role: "system", content: "You tell stories." }, { role: "user", content: "Who lit the lamp?" }]
let server, client

before(async () => {
	server = await start(...models, "--alias", "four", "--alias", "two")
	client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 })
})
after(() => server.stop())

// failure returns the error of a request.
async function failure(promise) {
	try {
		await promise
	} catch (error) {
		return error
	}
	assert.fail("the request was not refused")
}

test("models", async () => {
	const ids = []
	for await (const model of client.models.list()) {
		ids.push(model.id)
		assert.equal(model.object, "model")
		assert.ok(model.gq.bits_per_weight > 0 && model.gq.bytes > 0 && model.gq.context > 0, JSON.stringify(model))
	}
	assert.deepEqual(ids, ["four", "two"])
	assert.equal((await client.models.retrieve("two")).id, "two")
})

test("a chat completion, whole and streamed", async () => {
	const body = { model: "four", messages: question, max_tokens: 40, seed: 7, temperature: 0.9, top_p: 0.9 }
	const whole = await client.chat.completions.create(body)
	assert.equal(whole.object, "chat.completion")
	assert.equal(whole.model, "four")
	const [choice] = whole.choices
	assert.equal(choice.message.role, "assistant")
	assert.ok(["stop", "length"].includes(choice.finish_reason))
	assert.ok(choice.message.content.length > 20)
	assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens)
	assert.ok(whole.usage.completion_tokens <= 40)
	assert.equal(whole.timings.seed, 7)
	for (const name of ["first_token_seconds", "prefill_seconds", "decode_seconds", "total_seconds", "prefill_tokens_per_second", "decode_tokens_per_second"]) assert.ok(whole.timings[name] > 0, name)

	let text = "", finish, usage, events = 0
	for await (const chunk of await client.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } })) {
		assert.equal(chunk.object, "chat.completion.chunk")
		events++
		text += chunk.choices[0]?.delta.content ?? ""
		finish = chunk.choices[0]?.finish_reason ?? finish
		usage = chunk.usage ?? usage
	}
	assert.equal(text, choice.message.content)
	assert.equal(finish, choice.finish_reason)
	assert.equal(usage.completion_tokens, whole.usage.completion_tokens)
	assert.ok(events > 20, `${events} events: the answer was not streamed`)

	const final = await client.chat.completions.stream({ ...body }).finalChatCompletion()
	assert.equal(final.choices[0].message.content, text)
})

test("several answers", async () => {
	const body = { model: "four", messages: question, max_tokens: 20, temperature: 1 }
	const both = await client.chat.completions.create({ ...body, seed: 3, n: 2 })
	assert.deepEqual(both.choices.map((c) => c.index), [0, 1])
	const [a, b] = both.choices.map((c) => c.message.content)
	assert.notEqual(a, b)
	assert.equal((await client.chat.completions.create({ ...body, seed: 4 })).choices[0].message.content, b)
})

test("log probabilities of a chat", async () => {
	const body = { model: "four", messages: question, max_tokens: 12, temperature: 0, logprobs: true, top_logprobs: 3 }
	const whole = await client.chat.completions.create(body)
	const tokens = whole.choices[0].logprobs.content
	assert.equal(tokens.length, whole.usage.completion_tokens)
	assert.equal(Buffer.from(tokens.flatMap((t) => t.bytes)).toString().trim(), whole.choices[0].message.content.trim())
	for (const t of tokens) {
		assert.equal(t.top_logprobs.length, 3)
		assert.equal(t.top_logprobs[0].token, t.token, "temperature 0 takes the likeliest token")
		assert.equal(t.top_logprobs[0].logprob, t.logprob)
		const p = t.top_logprobs.map((x) => Math.exp(x.logprob))
		assert.ok(p[0] >= p[1] && p[1] >= p[2] && p[0] + p[1] + p[2] <= 1.000001, p)
	}
	const streamed = []
	for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) streamed.push(...(chunk.choices[0]?.logprobs?.content ?? []))
	assert.deepEqual(streamed, tokens)
})

test("completions say what gq run says", async () => {
	for (const [model, file] of [["four", models[0]], ["two", models[1]]]) {
		const whole = await client.completions.create({ model, prompt, max_tokens: 30, seed: 5 })
		assert.equal(whole.object, "text_completion")
		assert.equal(whole.choices[0].text + "\n", run(file, "--prompt", prompt, "--max-tokens", "30", "--seed", "5"))
		let text = ""
		for await (const chunk of await client.completions.create({ model, prompt, max_tokens: 30, seed: 5, stream: true })) text += chunk.choices[0]?.text ?? ""
		assert.equal(text, whole.choices[0].text)
	}
})

test("completions with echo, log probabilities, token ids and a stop string", async () => {
	const body = { model: "four", max_tokens: 8, temperature: 0 }
	const whole = (await client.completions.create({ ...body, prompt, echo: true, logprobs: 2 })).choices[0]
	assert.ok(whole.text.startsWith(prompt))
	const { tokens, token_logprobs, top_logprobs, text_offset } = whole.logprobs
	assert.equal(token_logprobs[0], null)
	assert.ok(token_logprobs.slice(1).every((x) => x <= 0))
	assert.ok(tokens.length === token_logprobs.length && tokens.length === top_logprobs.length && tokens.length === text_offset.length)
	const many = await client.completions.create({ ...body, prompt: [[1, 20, 30], [1, 40]], echo: true })
	assert.deepEqual(many.choices.map((c) => c.index), [0, 1])
	const rest = whole.text.slice(prompt.length)
	const stop = rest.slice(5, 9)
	const stopped = (await client.completions.create({ ...body, prompt, stop: [stop] })).choices[0]
	assert.equal(stopped.text, rest.slice(0, rest.indexOf(stop)))
	assert.equal(stopped.finish_reason, "stop")
})

test("errors have the client's types", async () => {
	const body = { model: "four", messages: question, max_tokens: 5 }
	const unknown = await failure(client.chat.completions.create({ ...body, model: "gpt-4" }))
	assert.ok(unknown instanceof OpenAI.NotFoundError)
	assert.equal(unknown.code, "model_not_found")
	assert.match(unknown.message, /four, two/)

	const long = await failure(client.chat.completions.create({ ...body, messages: [{ role: "user", content: "the sea ".repeat(2000) }] }))
	assert.ok(long instanceof OpenAI.BadRequestError)
	assert.equal(long.code, "context_length_exceeded")
	assert.match(long.message, /\d+ tokens.*\d+/)

	for (const [field, value] of [["tools", [{ type: "function", function: { name: "f" } }]], ["response_format", { type: "json_object" }], ["logit_bias", { 5: 1 }]]) {
		const refused = await failure(client.chat.completions.create({ ...body, [field]: value }))
		assert.ok(refused instanceof OpenAI.BadRequestError)
		assert.equal(refused.param, field)
		assert.match(refused.message, new RegExp(field))
	}
	const image = await failure(client.chat.completions.create({ ...body, messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "data:," } }] }] }))
	assert.ok(image instanceof OpenAI.BadRequestError)
	assert.match(image.message, /image_url/)
	const misspelt = await failure(client.chat.completions.create({ ...body, temprature: 1 }))
	assert.match(misspelt.message, /temperature/)
	const wrong = await failure(client.chat.completions.create({ ...body, temperature: -1 }))
	assert.equal(wrong.param, "temperature")
	const nowhere = await failure(client.embeddings.create({ model: "four", input: "x" }))
	assert.ok(nowhere instanceof OpenAI.NotFoundError)
})

test("an API key", async () => {
	const key = "0123456789abcdef0123", dir = mkdtempSync(join(tmpdir(), "gq-"))
	writeFileSync(join(dir, "key"), `${key}\n`)
	const locked = await start(models[0], "--api-key-file", join(dir, "key"))
	try {
		const wrong = await failure(new OpenAI({ baseURL: `${locked.url}/v1`, apiKey: "wrong", maxRetries: 0 }).models.list())
		assert.ok(wrong instanceof OpenAI.AuthenticationError)
		const right = await new OpenAI({ baseURL: `${locked.url}/v1`, apiKey: key, maxRetries: 0 }).models.list()
		assert.equal(right.data.length, 1)
	} finally {
		await locked.stop()
		rmSync(dir, { recursive: true })
	}
})

test("a client that leaves frees its sequence, and a full server says so", async () => {
	const small = await start(models[0], "--parallel", "1", "--queue", "1", "--context", "8192", "--activations", "float32")
	const client = new OpenAI({ baseURL: `${small.url}/v1`, apiKey: "none", maxRetries: 0 })
	const endless = { model: "", prompt, max_tokens: 8000, ignore_eos: true }
	try {
		endless.model = (await client.models.list()).data[0].id
		const stream = await client.completions.create({ ...endless, stream: true })
		let events = 0
		for await (const chunk of stream) if (chunk.choices[0]?.text && ++events === 3) break // the client closes the connection
		await small.free()

		const first = new AbortController(), second = new AbortController()
		const running = failure(client.completions.create(endless, { signal: first.signal }))
		while (await small.metric("gq_sequences_running") === 0);
		const waiting = failure(client.completions.create(endless, { signal: second.signal }))
		while (await small.metric("gq_sequences_waiting") === 0);
		const refused = await failure(client.completions.create(endless))
		assert.ok(refused instanceof OpenAI.RateLimitError)
		assert.ok(Number(refused.headers.get("retry-after")) >= 1)
		second.abort()
		first.abort()
		assert.ok(await running instanceof OpenAI.APIUserAbortError)
		assert.ok(await waiting instanceof OpenAI.APIUserAbortError)
		await small.free()
		assert.ok((await client.completions.create({ ...endless, max_tokens: 3 })).usage.completion_tokens === 3)
	} finally {
		await small.stop()
	}
})
