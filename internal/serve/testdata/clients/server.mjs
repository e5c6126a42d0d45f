// Starts gq serve for the tests: the program is $GQ, the models are $GQ_MODELS, two files.
import { spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { createInterface } from "node:readline"

const program = process.env.GQ
export const models = (process.env.GQ_MODELS ?? "").split(":").filter(Boolean)
// patience is how many milliseconds something may take that otherwise happens soon, however busy the machine is.
export const patience = 120_000
if (!program || models.length !== 2) throw new Error("set GQ to the program and GQ_MODELS to two models, FILE:FILE")

// start runs gq serve with the arguments on a free port.
export async function start(...args) {
	const child = spawn(program, ["serve", ...args, "--port", "0", "--json", "--quiet"], { stdio: ["ignore", "pipe", "inherit"] })
	const ended = once(child, "exit")
	const line = await Promise.race([once(createInterface(child.stdout), "line"), ended.then(([status]) => { throw new Error(`gq serve ended with status ${status}`) })])
	const url = JSON.parse(line[0]).url.replace(/\/$/, "")
	return {
		url,
		async stop() { // as an operator does
			child.kill("SIGTERM")
			const [status] = await ended
			if (status !== 0) throw new Error(`gq serve ended with status ${status} after SIGTERM`)
		},
		// metric adds up the series of a metric.
		async metric(name) {
			const text = await (await fetch(`${url}/metrics`)).text()
			const values = text.split("\n").filter((l) => l.startsWith(name + "{") || l.startsWith(name + " ")).map((l) => Number(l.slice(l.lastIndexOf(" "))))
			if (!values.length) throw new Error(`/metrics has no ${name}`)
			return values.reduce((a, b) => a + b)
		},
		// free waits until no sequence runs.
		async free() {
			for (const end = Date.now() + patience; Date.now() < end;) {
				if (await this.metric("gq_sequences_running") === 0 && await this.metric("gq_sequences_waiting") === 0) return
				await new Promise((resolve) => setTimeout(resolve, 25))
			}
			throw new Error(`sequences are still in use after ${patience} ms`)
		},
	}
}

// run is what gq run writes for a prompt.
export function run(...args) {
	const { status, stdout, stderr } = spawnSync(program, ["run", ...args, "--quiet"], { encoding: "utf8" })
	if (status !== 0) throw new Error(stderr)
	return stdout
}
