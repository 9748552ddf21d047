// A session of a compiled program, over the C functions of an artifact's module.
//
// With threads it needs an isolated page, and runs in a worker: a page itself must not wait.
"use strict";

const PE_ABI = 15; // of pe.h
const MESSAGE_BYTES = 512;
const ARRAYS = { f32: Float32Array, i32: Int32Array, i64: BigInt64Array };
const FILE_TYPES = { F32: "f32", I32: "i32", I64: "i64" };

const sizeOf = (shape) => shape.reduce((all, size) => all * size, 1);

// Returns the tensors of a safetensors file: {name: {type, shape, bytes}}.
function readTensors(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  delete header.__metadata__;
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets: [begin, end] }] of Object.entries(header)) {
    const start = 8 + length;
    tensors[name] = { type: FILE_TYPES[dtype], shape, bytes: buffer.slice(start + begin, start + end) };
  }
  return tensors;
}

const PAGE = 65536;
const SHARED = { initial: (16 << 20) / PAGE, maximum: 2 ** 32 / PAGE - 1, shared: true }; // as linked

// Workers for the threads of a program, each with an instance of its module over one memory. They
// are started here, since a worker starts only while the one that made it waits for events.
class Team {
  static async start(module, count) {
    if (globalThis.crossOriginIsolated === false) {
      throw new Error(
        "threads need an isolated page: serve it with the headers Cross-Origin-Opener-Policy: " +
          "same-origin and Cross-Origin-Embedder-Policy: require-corp",
      );
    }
    const team = new Team();
    team.memory = new WebAssembly.Memory(SHARED);
    team.workers = await Promise.all(
      Array.from({ length: count }, () => startWorker({ module, memory: team.memory })),
    );
    team.started = 0;
    return team;
  }

  // What a module with threads imports; a thread's number is negative if no worker is left.
  imports() {
    const spawn = (start) => {
      const worker = this.workers[this.started];
      if (!worker) {
        return -1;
      }
      this.started += 1;
      worker.postMessage({ number: this.started, start });
      return this.started;
    };
    return { env: { memory: this.memory }, wasi: { "thread-spawn": spawn } };
  }
}

function startWorker(message) {
  return new Promise((done, failed) => {
    const worker = new Worker("thread.js");
    worker.onmessage = () => done(worker);
    worker.onerror = ({ message }) =>
      failed(new Error(`thread.js: ${message || "it cannot be loaded"}`));
    worker.postMessage(message);
  });
}

class Session {
  // Opens the program of an artifact's module with its manifest, and loads its weights. `threads`
  // is for a module of wasm32-threads.
  static async open(bytes, manifest, weights, threads = 1) {
    const module = await WebAssembly.compile(bytes);
    const shared = WebAssembly.Module.imports(module).some(({ kind }) => kind === "memory");
    const team = shared ? await Team.start(module, threads - 1) : null;
    const instance = await WebAssembly.instantiate(module, team ? team.imports() : {});
    return new Session(instance.exports, manifest, readTensors(weights), team ? threads : 1);
  }

  constructor(c, manifest, weights, threads) {
    this.c = c;
    this.manifest = manifest;
    this.steps = 0;
    c._initialize();
    const program = c[`pe_program_${manifest.name}`].value;
    const message = this.take(MESSAGE_BYTES);
    const caller = this.words([PE_ABI, 0, message, MESSAGE_BYTES]);
    this.handle = c.pe_open_by(program, threads, caller);
    if (!this.handle) {
      throw new Error(this.text(message));
    }
    for (const [name, { bytes }] of Object.entries(weights)) {
      const text = this.store(new TextEncoder().encode(`${name}\0`));
      const data = this.store(new Uint8Array(bytes));
      this.check(c.pe_set_param(this.handle, text, data, bytes.byteLength));
      c.free(text);
      c.free(data);
    }
    this.calls = {};
    for (const [name, entry] of Object.entries(manifest.entries)) {
      this.calls[name] = this.prepare(name, entry);
    }
  }

  // One update of the weights; returns the outputs, "loss" among them.
  trainStep(inputs, lr) {
    this.steps += 1;
    return this.run("train", { ...inputs, lr: [lr], step: [this.steps], seed: [this.steps - 1] });
  }

  predict(inputs) {
    return this.run("predict", inputs);
  }

  run(name, inputs) {
    const call = this.calls[name];
    for (const { name: input, place, type, size } of call.inputs) {
      const values = inputs[input];
      if (!values || values.length !== size) {
        throw new Error(`input ${input} has ${size} numbers, not ${values ? values.length : "none"}`);
      }
      new ARRAYS[type](this.c.memory.buffer, place, size).set(values);
    }
    this.check(this.c.pe_call(this.handle, ...call.arguments));
    const outputs = {};
    for (const { name: output, place, type, size } of call.outputs) {
      outputs[output] = new ARRAYS[type](this.c.memory.buffer, place, size).slice();
    }
    return outputs;
  }

  // Memory for the tensors of an entry, and the arguments of its pe_call.
  prepare(name, entry) {
    const place = (tensor) => {
      const size = sizeOf(tensor.shape);
      const bytes = size * ARRAYS[tensor.dtype].BYTES_PER_ELEMENT;
      return { name: tensor.name, type: tensor.dtype, size, bytes, place: this.take(bytes) };
    };
    const [inputs, outputs] = [entry.inputs.map(place), entry.outputs.map(place)];
    const column = (tensors, key) => this.words(tensors.map((tensor) => tensor[key]));
    const lengths = [inputs.length, outputs.length];
    const sizes = this.words([column(inputs, "bytes"), column(outputs, "bytes"), ...lengths]);
    const text = this.store(new TextEncoder().encode(`${name}\0`));
    return {
      inputs,
      outputs,
      arguments: [text, column(inputs, "place"), column(outputs, "place"), sizes],
    };
  }

  take(bytes) {
    const place = this.c.malloc(bytes);
    if (!place) {
      throw new Error(`the browser gives no further ${bytes} bytes of memory`);
    }
    return place;
  }

  store(bytes) {
    const place = this.take(bytes.length);
    new Uint8Array(this.c.memory.buffer, place, bytes.length).set(bytes);
    return place;
  }

  words(numbers) {
    return this.store(new Uint8Array(new Uint32Array(numbers).buffer));
  }

  text(place) {
    const bytes = new Uint8Array(this.c.memory.buffer, place, MESSAGE_BYTES);
    return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0))); // it reads no shared memory
  }

  check(status) {
    if (status !== 0) {
      throw new Error(this.text(this.c.pe_message(this.handle)));
    }
  }
}

if (typeof module !== "undefined") {
  module.exports = { Session, readTensors };
}
