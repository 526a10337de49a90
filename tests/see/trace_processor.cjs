// Perfetto's trace processor under Node.js: node trace_processor.cjs ENGINE.js <requests >replies
// ENGINE.js is the worker of Perfetto's page, with trace_processor.wasm beside it. Both streams are of
// TraceProcessorRpcStream (Perfetto's trace_processor.proto).
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const engine = process.argv[2];

// What a worker of a browser has and Node.js has not: of the request for the .wasm file what the engine uses.
class FileRequest {
    open(method, url) {
        this.file = path.join(path.dirname(engine), path.basename(url));
    }
    send() {
        const bytes = fs.readFileSync(this.file);
        this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
    }
}
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = Object;
globalThis.location = { href: engine };
globalThis.XMLHttpRequest = FileRequest;
console.log = console.warn = console.error; // standard output is for replies

// By its name it would take itself for a script of Node.js, and look for what its own bundle does not have.
const node = process;
Object.defineProperty(node.versions, "node", { value: undefined });
vm.runInThisContext(fs.readFileSync(engine, "utf8"), { filename: engine });
setImmediate(() => {
    const replies = [];
    const port = { postMessage: (bytes) => replies.push(Buffer.from(bytes)) };
    globalThis.onmessage({ data: port });
    port.onmessage({ data: new Uint8Array(fs.readFileSync(0)) });
    fs.writeSync(1, Buffer.concat(replies));
    node.exit(0);
});
