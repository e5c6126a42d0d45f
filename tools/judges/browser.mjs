// Opens docs/examples/onnx/index.html in Chromium with a directory of gq, and prints the page's text:
//
//     node browser.mjs PACKAGES DIR PROMPT
//
// PACKAGES is where npm installed @huggingface/transformers and onnxruntime-web.
import {spawn} from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";

const [packages, dir, prompt] = process.argv.slice(2);
const page = path.join(import.meta.dirname, "../../docs/examples/onnx/index.html");
const types = {".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm", ".json": "application/json"};
// Sends the page's text here as soon as there is one.
const report = `<script type="module">
const text = document.getElementById("text");
while (!text.textContent) await new Promise(resolve => setTimeout(resolve, 50));
fetch("/answer", {method: "POST", body: text.textContent});
</script>`;

function file(url) {
    for (const [prefix, root] of [["/node_modules/", path.join(packages, "node_modules")], ["/models/model/", dir]]) {
        if (url.startsWith(prefix)) return path.join(root, url.slice(prefix.length));
    }
    return url === "/" ? page : "";
}

const profile = fs.mkdtempSync(path.join(os.tmpdir(), "gq-browser-"));
const server = http.createServer(async (request, response) => {
    if (request.method === "POST") {
        let body = "";
        for await (const piece of request) body += piece;
        response.end();
        console.log(body);
        return browser.kill();
    }
    const name = file(decodeURIComponent(new URL(request.url, "http://page").pathname));
    if (!fs.statSync(name, {throwIfNoEntry: false})?.isFile()) return response.writeHead(404).end();
    response.setHeader("Content-Type", types[path.extname(name)] ?? "application/octet-stream");
    response.end(Buffer.concat([fs.readFileSync(name), Buffer.from(name === page ? report : "")]));
}).listen(0, "127.0.0.1");
await new Promise(resolve => server.once("listening", resolve));
const url = `http://127.0.0.1:${server.address().port}/?prompt=${encodeURIComponent(prompt)}`;
const browser = spawn("chromium", ["--headless", "--no-sandbox", "--disable-gpu", `--user-data-dir=${profile}`, url], {stdio: "ignore"});
const timer = setTimeout(() => browser.kill(), 120_000);
browser.once("exit", () => {
    clearTimeout(timer);
    server.close();
    server.closeAllConnections();
    fs.rmSync(profile, {recursive: true, force: true, maxRetries: 5});
});
