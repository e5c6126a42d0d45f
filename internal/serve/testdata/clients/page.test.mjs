// The page of gq serve in Chromium: $CHROMIUM, or /usr/bin/chromium. Screenshots go to $GQ_SCREENSHOTS, if it is set.
import assert from "node:assert/strict"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { after, afterEach, before, test } from "node:test"
import axe from "axe-core"
import { chromium } from "playwright-core"
import { models, patience, start } from "./server.mjs"

const desktop = { width: 1280, height: 860 }, phone = { width: 375, height: 720 }
let browser, server, slow, contexts = [], pages = []

before(async () => {
	[server, slow] = await Promise.all([
		start(...models, "--alias", "books-4bit", "--alias", "books-2bit"),
		start(models[0], "--context", "8192", "--parallel", "1", "--activations", "float32"),
	])
	browser = await chromium.launch({
		executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
		timeout: patience,
		args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
	})
})
after(async () => {
	await browser?.close()
	await Promise.all([server?.stop(), slow?.stop()])
})

// open opens the page. Its console must stay empty, but for the texts in expected, and it must ask this server only.
async function open({ of = server, expected = [], init, routes = {}, ready = true, ...options } = {}) {
	const context = await browser.newContext({ viewport: desktop, colorScheme: "light", ...options })
	contexts.push(context)
	const page = await context.newPage()
	page.setDefaultTimeout(patience)
	pages.push(page)
	page.posted = []
	page.bad = []
	page.on("console", (m) => { if (m.type() !== "log" && !expected.some((e) => m.text().includes(e))) page.bad.push(`${m.type()}: ${m.text()}`) })
	page.on("pageerror", (error) => page.bad.push(String(error)))
	page.on("request", (r) => {
		if (!r.url().startsWith(`${of.url}/`) && !r.url().startsWith("data:")) page.bad.push(`a request to ${r.url()}`)
		if (r.method() === "POST") page.posted.push(r.postDataJSON())
	})
	if (init) await page.addInitScript(init)
	for (const [path, handler] of Object.entries(routes)) await page.route(`${of.url}${path}`, handler)
	await page.goto(of.url)
	if (ready) await page.waitForFunction(() => document.querySelector("#model").options.length > 0)
	return page
}
afterEach(async () => {
	const bad = pages.flatMap((p) => p.bad)
	await Promise.all(contexts.map((c) => c.close()))
	contexts = []
	pages = []
	assert.deepEqual(bad, [])
})

async function ask(page, text) {
	await page.fill("#prompt", text)
	await page.press("#prompt", "Enter")
}
// settled waits until the page is drawn and no answer runs.
const settled = (page) => page.waitForFunction(() => document.querySelector("#send").textContent === "Send" && document.querySelector(".answer") &&
	[...document.querySelectorAll(".answer")].every((a) => a.getAttribute("aria-busy") === "false"))
const answers = (page) => page.locator(".answer .text").allTextContents()
const shot = (page, name) => process.env.GQ_SCREENSHOTS && page.screenshot({ path: join(process.env.GQ_SCREENSHOTS, `${name}.png`) })
const events = (...list) => ({ status: 200, contentType: "text/event-stream", body: list.map((e) => `data: ${typeof e === "string" ? e : JSON.stringify(e)}\n\n`).join("") })
const piece = (content) => ({ choices: [{ index: 0, delta: { content } }] })
const refusal = (status, error, headers = {}) => ({ status, headers, contentType: "application/json", body: JSON.stringify({ error }) })

// accessible runs axe, and looks for what sticks out of the window.
async function accessible(page, state) {
	await page.evaluate(axe.source)
	const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }))
	assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(" ")}`), [], state)
	const wide = await page.evaluate(() => [...document.querySelectorAll("body *")].filter((e) => {
		const box = e.getBoundingClientRect()
		return box.width > 0 && !e.closest(".unseen, .skip, pre") && (box.right > innerWidth + 1 || box.left < -1)
	}).map((e) => e.outerHTML.slice(0, 80)))
	assert.deepEqual(wide, [], state)
}

test("an answer with its options and figures", async () => {
	const page = await open()
	for (const [name, value] of [["seed", "11"], ["max_tokens", "120"], ["temperature", "0.8"], ["top_p", "0.9"], ["top_k", "30"], ["min_p", "0.01"], ["repetition_penalty", "1.1"], ["presence_penalty", "0.1"], ["frequency_penalty", "0.1"]]) {
		await page.fill(`[data-option=${name}]`, value)
	}
	await page.fill("#stop", "Chapter\\n\nTHE END")
	await page.fill("#system", "You tell stories.")
	await ask(page, "Who lit the lamp?")
	await settled(page)
	const { stream, stream_options, prompt_cache_key, ...body } = page.posted[0]
	assert.match(prompt_cache_key, /^\d+(-\d+){3}$/)
	assert.deepEqual(body, {
		model: "books-4bit", messages: [{ role: "system", content: "You tell stories." }, { role: "user", content: "Who lit the lamp?" }], seed: 11, max_tokens: 120, temperature: 0.8,
		top_p: 0.9, top_k: 30, min_p: 0.01, repetition_penalty: 1.1, presence_penalty: 0.1, frequency_penalty: 0.1, stop: ["Chapter\n", "THE END"],
	})
	const whole = await (await fetch(`${server.url}/v1/chat/completions`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).json()
	const squeeze = (s) => s.replace(/\s+/g, "")
	assert.equal(squeeze((await answers(page))[0]), squeeze(whole.choices[0].message.content))
	const figures = () => page.locator(".figures").innerText()
	for (const part of [/First token\s+[\d.]+ m?s/, /Decoding\s+[\d.]+ tokens\/s/, /Total time\s+[\d.]+ m?s/, /Tokens\s+\d+ in, \d+ out/, /Seed\s+11/, /needs a price per hour/]) assert.match(await figures(), part)
	await page.fill("#price", "0.17")
	assert.match(await figures(), /Cost of a million tokens\s+[\d.e-]+ out, [\d.e-]+ in/)
	assert.match(await page.locator("#model-info").innerText(), /Scheme\s+.*4 bits[\s\S]*Bits per weight\s+[\d.]+[\s\S]*Size\s+[\d.]+ [kM]B/)
	await accessible(page, "an answer")
	await shot(page, "light")
	await page.reload()
	assert.equal(await page.inputValue("#price"), "0.17")
})

test("a random seed is shown, and gives the same answer again", async () => {
	const page = await open()
	await page.fill("[data-option=max_tokens]", "40")
	await ask(page, "Who lit the lamp?")
	await settled(page)
	const [first] = await answers(page), { seed } = page.posted[0]
	assert.match(await page.locator(".figures").innerText(), new RegExp(`Seed\\s+${seed}`))
	await page.click("text=Retry")
	await settled(page)
	assert.notEqual(page.posted[1].seed, seed)
	await page.fill("[data-option=seed]", String(seed))
	await page.click("text=Retry")
	await settled(page)
	assert.deepEqual(await answers(page), [first])
})

test("an answer is streamed; Esc and the button stop it and free its sequence", async () => {
	const page = await open({ of: slow })
	await page.fill("#price", "0.17")
	for (const stop of [() => page.keyboard.press("Escape"), () => page.click("#send")]) {
		await ask(page, "Tell me everything.")
		await page.waitForFunction(() => document.querySelector(".turn:last-child .plot path")) // 200 ms after the first token
		assert.equal(await slow.metric("gq_sequences_running"), 1)
		if (page.posted.length === 1) await accessible(page, "an answer is running")
		const length = await page.evaluate(() => document.querySelector(".turn:last-child .answer .text").textContent.length)
		await page.waitForFunction((length) => document.querySelector(".turn:last-child .answer .text").textContent.length > length && document.querySelector("#send").textContent === "Stop", length)
		await stop()
		await slow.free()
		await settled(page)
		assert.equal(await page.locator(".turn:last-child .note").innerText(), "Stopped.")
		const figures = await page.locator(".turn:last-child .figures").innerText()
		for (const part of [/First token\s+[\d.]+ m?s/, /Decoding\s+[\d.]+ tokens\/s/, /Cost of a million tokens\s+[\d.e-]+ out/, /Measured by the page/]) assert.match(figures, part)
		const [, low, high] = /^Tokens per second over the answer: between ([\d.]+) and ([\d.]+), first [\d.]+, last [\d.]+\.$/.exec(await page.locator(".turn:last-child .plot svg").getAttribute("aria-label"))
		const decoding = Number(/Decoding\s+([\d.]+)/.exec(figures)[1])
		assert.ok(low / 2 <= decoding && decoding <= high * 2, `${decoding} tokens/s are not between ${low} and ${high}`)
		await shot(page, "stopped")
		assert.equal(await page.locator("#status").innerText(), "The answer was stopped.")
	}
	// What was said so far belongs to the conversation.
	assert.deepEqual(page.posted[1].messages.map((m) => m.role), ["user", "assistant", "user"])
	await page.close()
	await slow.free()
})

test("leaving the page frees the sequence", async () => {
	const page = await open({ of: slow })
	await ask(page, "Tell me everything.")
	await page.waitForFunction(() => document.querySelector(".answer .text").textContent.length > 40)
	await page.goto("about:blank")
	await slow.free()
})

test("Esc of an input method stops nothing; a new chat is silent about the old answer", async () => {
	const page = await open({ of: slow })
	await ask(page, "Tell me everything.")
	await page.waitForFunction(() => document.querySelector(".answer .text").textContent.length > 40)
	await page.evaluate(() => document.querySelector("#prompt").dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", isComposing: true, bubbles: true })))
	assert.equal(await page.locator("#send").innerText(), "Stop")
	await page.click("text=New chat")
	await slow.free()
	await page.waitForFunction(() => document.querySelector("#send").textContent === "Send")
	await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))))
	assert.equal(await page.locator("#status").innerText(), "A new chat begins.")
	assert.equal(await page.locator("#spoken").innerText(), "")
})

test("text that a new chat overtakes before it is drawn is not spoken", async () => {
	const page = await open({ of: slow, init: () => {
		const request = window.requestAnimationFrame.bind(window)
		window.frames = null // a list while frames are held back
		window.requestAnimationFrame = (draw) => window.frames ? window.frames.push(draw) : request(draw)
		window.release = () => { const held = window.frames; window.frames = null; held.forEach(request) }
	} })
	await ask(page, "Tell me everything.")
	await page.waitForFunction(() => document.querySelector(".answer .text").textContent.length > 40)
	await page.evaluate(() => { window.frames = [] })
	await page.waitForFunction(() => window.frames.length > 0, undefined, { polling: 20 })
	await page.evaluate(() => document.querySelector("#new").click())
	await slow.free()
	await page.waitForFunction(() => document.querySelector("#send").textContent === "Send", undefined, { polling: 20 })
	await page.evaluate(() => { window.release(); return new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))) })
	assert.equal(await page.locator("#spoken").innerText(), "")
	assert.equal(await page.locator("#status").innerText(), "A new chat begins.")
})

test("a message is edited, an answer asked for again", async () => {
	const page = await open()
	await page.fill("[data-option=max_tokens]", "10")
	for (const text of ["One?", "Two?", "Three?"]) {
		await ask(page, text)
		await settled(page)
	}
	assert.deepEqual(page.posted[2].messages.map((m) => m.role), ["user", "assistant", "user", "assistant", "user"])
	const second = page.locator(".turn").nth(1)
	await second.getByRole("button", { name: "Edit this message" }).click()
	assert.equal(await second.getByLabel("Edited message").inputValue(), "Two?")
	await page.keyboard.press("Escape")
	assert.equal(await page.locator(".turn").count(), 3)
	assert.equal(await page.evaluate(() => document.activeElement.textContent), "Edit")
	await page.keyboard.press("Enter")
	await second.getByLabel("Edited message").fill("Deux?")
	await page.keyboard.press("Enter")
	await settled(page)
	assert.equal(await page.locator(".turn").count(), 2)
	assert.deepEqual(page.posted[3].messages.map((m) => m.content).filter((_, i) => i % 2 === 0), ["One?", "Deux?"])
	await page.locator(".turn").nth(0).getByRole("button", { name: /Retry/ }).click()
	await settled(page)
	assert.deepEqual(page.posted[4].messages, [{ role: "user", content: "One?" }])
	await page.click("text=New chat")
	assert.equal(await page.locator(".turn").count(), 0)
	await ask(page, "Four?")
	await settled(page)
	assert.deepEqual(page.posted[5].messages, [{ role: "user", content: "Four?" }])
})

test("two models side by side, with the first token that differs", async () => {
	const page = await open()
	await page.fill("[data-option=max_tokens]", "60")
	await page.check("#two")
	await ask(page, "It was a dark night, and the old man")
	await settled(page)
	assert.equal(page.posted.length, 2)
	const [a, b] = page.posted
	assert.deepEqual([a.model, b.model], ["books-4bit", "books-2bit"])
	assert.equal(a.temperature, 0)
	assert.deepEqual({ ...a, model: "" }, { ...b, model: "" })
	const [x, y] = await Promise.all([a, b].map(async (body) => {
		const { stream, stream_options, ...whole } = body
		return (await (await fetch(`${server.url}/v1/chat/completions`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(whole) })).json()).choices[0].logprobs.content
	}))
	const at = x.findIndex((t, i) => t.token !== y[i]?.token)
	assert.ok(at >= 0, "the models give the same answer")
	assert.deepEqual(await page.locator(".answer mark").allTextContents(), [x[at].token, y[at].token])
	const words = await page.locator(".difference").innerText()
	assert.match(words, new RegExp(`Token ${at + 1} is `))
	assert.ok(words.includes(JSON.stringify(x[at].token)) && words.includes(JSON.stringify(y[at].token)), words)
	assert.equal(await page.locator(".figures").count(), 2)
	await accessible(page, "two answers")
	await shot(page, "two")

	await page.check("#together")
	await ask(page, "And then?")
	await settled(page)
	assert.equal(page.posted.length, 4)
	assert.notDeepEqual(page.posted[2].messages, page.posted[3].messages, "each model has its own answers before")
	await page.uncheck("#two")
	assert.equal(await page.inputValue("[data-option=temperature]"), "")
})

test("equal answers are called equal", async () => {
	const page = await open()
	await page.fill("[data-option=max_tokens]", "12")
	await page.check("#two")
	await page.selectOption("#model-2", "books-4bit")
	await ask(page, "It was a dark night")
	await settled(page)
	assert.equal(await page.locator(".difference").innerText(), "The answers are equal in all 12 tokens.")
	assert.equal(await page.locator("mark").count(), 0)
})

test("errors are said in words", async () => {
	let reply
	const page = await open({ expected: ["Failed to load resource"], routes: { "/v1/chat/completions": (route) => reply(route) } })
	for (const [answer, words] of [
		[(r) => r.fulfill(refusal(429, { message: "all 4 sequences are in use and 16 requests wait", code: "server_busy" }, { "Retry-After": "7" })), /The server is busy\. All 4 sequences .* Try again in 7 s\./],
		[(r) => r.fulfill(refusal(400, { message: "the prompt has 300 tokens, the context is 256", code: "context_length_exceeded" })), /does not fit the model's context\. The prompt has 300 tokens, the context is 256\. Shorten it, or start a new chat\./],
		[(r) => r.fulfill({ status: 502, body: "<html>" }), /The server refused the request \(status 502\)\./],
		[(r) => r.abort("connectionrefused"), /The connection to the server was lost before an answer came/],
		[(r) => r.fulfill(events(piece("Half an"), piece(" answer"))), /The connection to the server was lost in the middle of the answer/],
		[(r) => r.fulfill(events(piece("Half"), { error: { message: "the server stops" } })), /The server ended the answer\. The server stops\./],
	]) {
		reply = answer
		await ask(page, "Who lit the lamp?")
		await settled(page)
		assert.match(await page.locator(".turn:last-child .bad").innerText(), words)
		assert.match(await page.locator("#status").innerText(), words)
	}
	assert.equal(await page.locator(".turn").nth(4).locator(".answer .text").innerText(), "Half an answer")
	assert.match(await page.locator(".turn").nth(0).locator(".bad").innerText(), /left out of what follows/)
	reply = (r) => r.continue()
	await ask(page, "Who lit the lamp?")
	await settled(page)
	assert.deepEqual(page.posted[6].messages.map((m) => m.role), ["user", "assistant", "user", "assistant", "user"])
	await ask(page, "the sea ".repeat(400)) // to the server
	await settled(page)
	assert.match(await page.locator(".turn:last-child .bad").innerText(), /does not fit the model's context\. .*\d+ tokens.* 256\b.* Shorten it/)
	await accessible(page, "errors")
	await shot(page, "errors")
})

test("an API key is asked for", async () => {
	const dir = mkdtempSync(join(tmpdir(), "gq-")), key = "0123456789abcdef0123"
	writeFileSync(join(dir, "key"), key)
	const locked = await start(models[0], "--api-key-file", join(dir, "key"))
	try {
		const page = await open({ of: locked, expected: ["401"], ready: false })
		const loaded = () => page.waitForFunction(() => document.querySelector("#model").options.length > 0)
		await page.waitForSelector("#key-field:not([hidden])")
		assert.equal(await page.evaluate(() => document.activeElement.id), "key")
		await accessible(page, "an API key is asked for")
		await page.keyboard.type("schlüssel 鍵")
		await page.keyboard.press("Enter")
		assert.match(await page.locator("#status").innerText(), /An API key has .* of ASCII only/)
		await page.fill("#key", "wrong")
		await Promise.all([page.waitForResponse((r) => r.status() === 401), page.keyboard.press("Enter")])
		await page.fill("#key", key)
		await page.keyboard.press("Enter")
		await loaded()
		await page.fill("[data-option=max_tokens]", "5")
		await ask(page, "Who lit the lamp?")
		await settled(page)
		assert.equal(await page.locator(".bad:visible").count(), 0)
		await page.reload() // the key stays
		await loaded()
	} finally {
		await Promise.all(contexts.map((c) => c.close()))
		await locked.stop()
		rmSync(dir, { recursive: true })
	}
})

test("without a server the page says so", async () => {
	let up = false
	const page = await open({ expected: ["Failed to load resource"], ready: false, routes: { "/v1/models": (route) => up ? route.continue() : route.abort("connectionrefused") } })
	await page.waitForSelector("#banner .bad")
	up = true
	await page.click("text=Try again")
	await page.waitForFunction(() => document.querySelector("#model").options.length === 2)
	assert.equal(await page.locator("#banner .bad").count(), 0)
})

test("what a model says stays text", async () => {
	const hostile = "<img src=x onerror=alert(1)><script>alert(2)</script> [link](javascript:alert(3)) **strong** *em* `code <b>` 2 * 3 * 4\n\n# Title\n- one\n- two\n\n3. three\n\n```html\n<i>&amp;</i>\n```\nend"
	const page = await open({ routes: { "/v1/chat/completions": (r) => r.fulfill(events(...[...hostile].map(piece), { choices: [{ index: 0, delta: {}, finish_reason: "stop" }] }, "[DONE]")) } })
	page.on("dialog", () => page.bad.push("a dialog"))
	await ask(page, hostile)
	await settled(page)
	const html = await page.locator(".answer .text").innerHTML()
	assert.equal(html, "<p>&lt;img src=x onerror=alert(1)&gt;&lt;script&gt;alert(2)&lt;/script&gt; [link](javascript:alert(3)) <strong>strong</strong> <em>em</em> <code>code &lt;b&gt;</code> 2 * 3 * 4</p>" +
		"<p><strong>Title</strong></p><ul><li>one</li><li>two</li></ul><ol start=\"3\"><li>three</li></ol><pre tabindex=\"0\" role=\"region\" aria-label=\"Code\">&lt;i&gt;&amp;amp;&lt;/i&gt;</pre><p>end</p>")
	assert.equal(await page.locator(".own .text").innerText(), hostile)
	await accessible(page, "Markdown")
	await shot(page, "markdown")
})

test("a screen reader hears sentences and the outcome", async () => {
	const page = await open({ routes: { "/v1/chat/completions": (r) => r.fulfill(events(...["The ", "lamp ", "was ", "lit. ", "Nobody ", "knew ", "why"].map(piece), { choices: [{ index: 0, delta: {}, finish_reason: "stop" }] }, "[DONE]")) } })
	await ask(page, "Who lit the lamp?")
	await settled(page)
	assert.equal((await page.locator("#spoken p").allInnerTexts()).join(" "), "The lamp was lit. Nobody knew why")
	assert.match(await page.locator("#status").innerText(), /^The answer is complete: 7 tokens/)
	assert.equal(await page.locator("#spoken").getAttribute("role"), "log")
	for (const landmark of ["banner", "main"]) assert.equal(await page.getByRole(landmark).count(), 1, landmark)
	for (const name of ["Conversation", "Message", "Settings"]) assert.ok(await page.getByLabel(name, { exact: true }).count() > 0, name)
})

test("the keyboard is enough", async () => {
	const page = await open()
	await page.keyboard.type("Line one")
	await page.keyboard.press("Shift+Enter")
	await page.keyboard.type("line two")
	await page.keyboard.press("Enter")
	await settled(page)
	assert.equal(page.posted[0].messages[0].content, "Line one\nline two")
	// Tab passes everything that can be used, each with a visible focus, and comes out at the end.
	const seen = new Set()
	await page.focus(".skip")
	for (let i = 0; i < 60; i++) {
		if (i > 0) await page.keyboard.press("Tab")
		const now = await page.evaluate(() => {
			const e = document.activeElement
			if (e === document.body) return null
			const style = getComputedStyle(e)
			return { name: e.id || e.dataset.option || e.getAttribute("aria-label") || e.className, visible: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 || e.className === "skip" }
		})
		if (!now || seen.has(now.name)) break
		assert.ok(now.visible, `${now.name} has no visible focus`)
		seen.add(now.name)
	}
	for (const name of ["skip", "new", "settings-toggle", "conversation", "Edit this message", "Retry the answer of books-4bit", "Copy the answer of books-4bit", "prompt", "send", "model", "two", "price", "system", "temperature", "seed", "stop", "defaults"]) {
		assert.ok(seen.has(name), `Tab does not reach ${name}: ${[...seen].join(", ")}`)
	}
	await page.focus("#settings-toggle")
	await page.keyboard.press("Enter")
	assert.equal(await page.isVisible("#settings"), false)
	await page.keyboard.press("Enter")
	assert.equal(await page.evaluate(() => document.activeElement.id), "settings-title")
})

test("a value that is not valid is said before anything is sent", async () => {
	const page = await open()
	for (const value of ["2", "0"]) {
		await page.fill("[data-option=top_p]", value)
		await ask(page, "Who lit the lamp?")
		assert.equal(await page.evaluate(() => document.activeElement.dataset.option), "top_p")
		assert.equal(page.posted.length, 0)
	}
	assert.equal(await page.inputValue("#prompt"), "Who lit the lamp?")
})

test("light and dark, desktop and phone", async () => {
	const colors = []
	for (const colorScheme of ["light", "dark"]) {
		for (const [name, viewport] of [["desktop", desktop], ["phone", phone]]) {
			const page = await open({ colorScheme, viewport })
			await accessible(page, `empty, ${colorScheme}, ${name}`)
			await shot(page, `empty-${colorScheme}-${name}`)
			if (name === "phone") await page.click("#settings-toggle")
			await page.fill("[data-option=max_tokens]", "80")
			await page.fill("#price", "0.17")
			await page.check("#two")
			if (name === "phone") {
				await accessible(page, `settings, ${colorScheme}`)
				await shot(page, `settings-${colorScheme}-${name}`)
				await page.click("#settings-done")
			}
			await ask(page, "Who lit the lamp of the lighthouse?")
			await settled(page)
			await accessible(page, `two, ${colorScheme}, ${name}`)
			await shot(page, `two-${colorScheme}-${name}`)
			await page.evaluate(() => document.querySelector("#two").click())
			await ask(page, "And then?")
			await settled(page)
			await accessible(page, `one, ${colorScheme}, ${name}`)
			await shot(page, `one-${colorScheme}-${name}`)
			colors.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor))
		}
	}
	assert.equal(colors[0], colors[1])
	assert.notEqual(colors[0], colors[2])
})

test("without storage the page works", async () => {
	const page = await open({ init: () => { for (const name of ["localStorage", "sessionStorage"]) Object.defineProperty(window, name, { get() { throw new Error("forbidden") } }) } })
	await page.fill("#price", "1")
	await ask(page, "Who lit the lamp?")
	await settled(page)
	assert.match(await page.locator(".figures").innerText(), /Cost of a million tokens\s+[\d.]/)
})
