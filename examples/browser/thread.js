// A thread of a program: an instance of its module over the session's memory.
"use strict";

let instance;

onmessage = async ({ data }) => {
  if (data.module) {
    const wasi = { "thread-spawn": () => -1 }; // a thread starts no other
    const imports = { env: { memory: data.memory }, wasi };
    instance = await WebAssembly.instantiate(data.module, imports);
    postMessage("ready");
  } else {
    instance.exports.wasi_thread_start(data.number, data.start);
  }
};
