// node perfetto_engine.js BUNDLE REQUESTS: what Perfetto's trace processor (WebAssembly, as its web page loads it into a
// worker) answers to the frames in a file, on standard output. The worker's surroundings are made here.
"use strict";
const fs = require("fs"), path = require("path"), vm = require("vm");
const [bundle, requests] = process.argv.slice(2);
const die = problem => { fs.writeSync(2, String(problem && problem.message).slice(0, 1000)); process.exit(1); };
process.on("uncaughtException", die);

class XMLHttpRequest {
  open(_, url) { this.file = path.join(path.dirname(bundle), path.basename(url)); }
  send() { this.status = 200; this.response = new Uint8Array(fs.readFileSync(this.file)).buffer; }
}
const self = { location: { href: "file:///" } };
const silent = Object.fromEntries(["log", "warn", "error", "info", "debug", "trace"].map(name => [name, () => {}]));
const context = vm.createContext({
  self, location: self.location, console: silent, XMLHttpRequest, WebAssembly, setTimeout, performance, URL, crypto,
  TextDecoder, TextEncoder, Uint8Array, ArrayBuffer, TypeError, Error, importScripts() {}, WorkerGlobalScope() {},
});
const port = { postMessage(bytes) { fs.writeSync(1, Buffer.from(bytes)); } };
try {
  vm.runInContext(fs.readFileSync(bundle, "utf8"), context);
} catch (problem) {
  die(problem);
}
self.onmessage({ data: port });
setTimeout(() => port.onmessage({ data: new Uint8Array(fs.readFileSync(requests)) }), 200);
