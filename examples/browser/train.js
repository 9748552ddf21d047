// Trains a compiled program in the browser: a session over the module's C functions, and the page.
"use strict";

const PE_ABI = 14; // of pe.h
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

class Session {
  // Opens the program of an artifact's module with its manifest, and loads its weights.
  static async open(module, manifest, weights) {
    const { instance } = await WebAssembly.instantiate(module, {});
    return new Session(instance.exports, manifest, readTensors(weights));
  }

  constructor(c, manifest, weights) {
    this.c = c;
    this.manifest = manifest;
    this.steps = 0;
    c._initialize();
    const program = c[`pe_program_${manifest.name}`].value;
    const message = this.take(MESSAGE_BYTES);
    const caller = this.words([PE_ABI, 0, message, MESSAGE_BYTES]);
    this.handle = c.pe_open_by(program, 1, caller);
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
    return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
  }

  check(status) {
    if (status !== 0) {
      throw new Error(this.text(this.c.pe_message(this.handle)));
    }
  }
}

// Returns losses of steps on the first batches of the rows, to be compared with those of C.
function trainRows(session, rows, steps, lr) {
  const batch = session.manifest.entries.train.inputs[0].shape[0];
  const x = new Float32Array(rows.x.bytes);
  const target = new BigInt64Array(rows.target.bytes);
  const losses = [];
  for (let i = 0; i < steps; i++) {
    const [begin, end] = [i * batch, (i + 1) * batch];
    const inputs = { x: x.subarray(begin * 64, end * 64), target: target.subarray(begin, end) };
    losses.push(session.trainStep(inputs, lr).loss[0]);
  }
  return losses;
}

// The page.

const SIDE = 8;
const RATE = 0.02;
const STEPS = 20;
const find = (id) => document.getElementById(id);

async function fetchBytes(name) {
  const response = await fetch(name);
  if (!response.ok) {
    throw new Error(`${name}: ${response.status} ${response.statusText}; write it by make.py`);
  }
  return response.arrayBuffer();
}

function clear(canvas) {
  const paper = canvas.getContext("2d");
  paper.fillStyle = "#000";
  paper.fillRect(0, 0, canvas.width, canvas.height);
}

function drawOn(canvas, changed) {
  const paper = canvas.getContext("2d");
  Object.assign(paper, { strokeStyle: "#fff", lineCap: "round", lineJoin: "round" });
  paper.lineWidth = canvas.width / 9;
  const scale = () => canvas.width / canvas.getBoundingClientRect().width;
  const point = (event) => [event.offsetX * scale(), event.offsetY * scale()];
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    paper.beginPath();
    paper.moveTo(...point(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.buttons) {
      paper.lineTo(...point(event));
      paper.stroke();
    }
  });
  canvas.addEventListener("pointerup", changed);
}

// The drawing as 8 x 8 numbers from -1 to 1, as the digits of the data set: means of squares.
function pictureOf(canvas) {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const cell = canvas.width / SIDE;
  const picture = new Float32Array(SIDE * SIDE).fill(-1);
  for (let y = 0; y < canvas.height; y++) {
    for (let x = 0; x < canvas.width; x++) {
      const place = Math.floor(y / cell) * SIDE + Math.floor(x / cell);
      picture[place] += (2 * pixels[4 * (y * canvas.width + x)]) / 255 / cell / cell;
    }
  }
  return picture;
}

function show(logits) {
  const powers = logits.map((logit) => Math.exp(logit - Math.max(...logits)));
  const whole = powers.reduce((sum, power) => sum + power, 0);
  const best = powers.indexOf(Math.max(...powers));
  find("answer").textContent = `It reads a ${best} (${Math.round((100 * powers[best]) / whole)} %).`;
}

// Half of a batch are the visitor's drawings, the other half digits of the data set.
function batchOf(drawings, rows, step, batch) {
  const x = new Float32Array(batch * SIDE * SIDE);
  const target = new BigInt64Array(batch);
  const [pictures, labels] = [new Float32Array(rows.x.bytes), new BigInt64Array(rows.target.bytes)];
  for (let i = 0; i < batch; i++) {
    const own = drawings[i % drawings.length];
    const other = (step * batch + i) % labels.length;
    const begin = other * SIDE * SIDE;
    x.set(i % 2 ? pictures.subarray(begin, begin + SIDE * SIDE) : own.picture, i * SIDE * SIDE);
    target[i] = i % 2 ? labels[other] : BigInt(own.digit);
  }
  return { x, target };
}

async function main() {
  const [module, weights, data] = await Promise.all(
    ["digits.wasm", "weights.safetensors", "rows.safetensors"].map(fetchBytes),
  );
  const manifest = JSON.parse(new TextDecoder().decode(await fetchBytes("manifest.json")));
  const rows = readTensors(data);
  const steps = Number(new URLSearchParams(location.search).get("check"));
  const session = await Session.open(module, manifest, weights);
  if (steps) {
    find("check").textContent = JSON.stringify(trainRows(session, rows, steps, RATE));
    return;
  }
  const batch = manifest.entries.train.inputs[0].shape[0];
  const [canvas, drawings] = [find("paper"), []];
  let done = 0;
  const look = () => {
    const picture = pictureOf(canvas);
    const x = new Float32Array(batch * SIDE * SIDE);
    for (let i = 0; i < batch; i++) {
      x.set(picture, i * SIDE * SIDE);
    }
    show([...session.predict({ x }).output.subarray(0, 10)]);
  };
  const teach = (digit) => {
    drawings.push({ picture: pictureOf(canvas), digit });
    const begin = performance.now();
    let loss = 0;
    for (let i = 0; i < STEPS; i++, done++) {
      loss = session.trainStep(batchOf(drawings, rows, done, batch), RATE).loss[0];
    }
    const took = (performance.now() - begin) / STEPS;
    find("report").textContent =
      `Drawings: ${drawings.length}. Steps: ${done}. Loss ${loss.toFixed(3)}, ${took.toFixed(1)} ms a step.`;
    look();
  };
  for (let digit = 0; digit < 10; digit++) {
    const button = document.createElement("button");
    button.textContent = digit;
    button.addEventListener("click", () => teach(digit));
    find("digits").append(button);
  }
  find("clear").addEventListener("click", () => clear(canvas));
  clear(canvas);
  drawOn(canvas, look);
  find("answer").textContent = "Draw a digit.";
}

if (typeof document === "undefined") {
  module.exports = { Session, readTensors, trainRows };
} else {
  main().catch((error) => {
    find("answer").textContent = error.message;
  });
}
