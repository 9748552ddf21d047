// The page: what it draws and shows. A worker trains.
"use strict";

// A session in a worker, with the methods of Session. Each returns a promise.
class Trainer {
  static async open(...session) {
    const trainer = new Trainer();
    await trainer.call("open", session);
    return trainer;
  }

  constructor() {
    this.worker = new Worker("trainer.js");
    this.waiting = [];
    this.worker.onmessage = ({ data: { number, outputs, error } }) => {
      const { done, failed } = this.waiting[number];
      delete this.waiting[number];
      error === undefined ? done(outputs) : failed(new Error(error));
    };
    this.worker.onerror = ({ message }) => {
      const error = new Error(`trainer.js: ${message || "it cannot be loaded"}`);
      Object.values(this.waiting).forEach(({ failed }) => failed(error));
    };
  }

  trainStep(...inputs) {
    return this.call("trainStep", inputs);
  }

  predict(...inputs) {
    return this.call("predict", inputs);
  }

  call(method, inputs) {
    return new Promise((done, failed) => {
      const number = this.waiting.push({ done, failed }) - 1;
      this.worker.postMessage({ number, method, inputs });
    });
  }
}

// Returns losses of steps on the first batches of the rows, to be compared with those of C.
async function trainRows(session, rows, batch, { steps, lr }) {
  const x = new Float32Array(rows.x.bytes);
  const target = new BigInt64Array(rows.target.bytes);
  const losses = [];
  for (let i = 0; i < steps; i++) {
    const [begin, end] = [i * batch, (i + 1) * batch];
    const inputs = { x: x.subarray(begin * 64, end * 64), target: target.subarray(begin, end) };
    losses.push((await session.trainStep(inputs, lr)).loss[0]);
  }
  return losses;
}

const SIDE = 8;
const RATE = 0.02;
const STEPS = 20;
const THREADS = 4; // at most, unless the address has ?threads=N
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
  const [rows, batch] = [readTensors(data), manifest.entries.train.inputs[0].shape[0]];
  const wished = new URLSearchParams(location.search);
  const threads = Number(wished.get("threads")) || Math.min(THREADS, navigator.hardwareConcurrency);
  const trainer = await Trainer.open(module, manifest, weights, threads);
  const steps = Number(wished.get("check"));
  if (steps) {
    const losses = await trainRows(trainer, rows, batch, { steps, lr: RATE });
    find("check").textContent = JSON.stringify(losses);
    return;
  }
  const [canvas, drawings] = [find("paper"), []];
  let done = 0;
  const look = async () => {
    const picture = pictureOf(canvas);
    const x = new Float32Array(batch * SIDE * SIDE);
    for (let i = 0; i < batch; i++) {
      x.set(picture, i * SIDE * SIDE);
    }
    show([...(await trainer.predict({ x })).output.subarray(0, 10)]);
  };
  const teach = async (digit) => {
    drawings.push({ picture: pictureOf(canvas), digit });
    const begin = performance.now();
    let loss = 0;
    for (let i = 0; i < STEPS; i++) {
      const inputs = batchOf(drawings, rows, done++, batch);
      [loss] = (await trainer.trainStep(inputs, RATE)).loss;
    }
    const took = (performance.now() - begin) / STEPS;
    find("report").textContent =
      `Drawings: ${drawings.length}. Steps: ${done}. Loss ${loss.toFixed(3)}, ${took.toFixed(1)} ms a step.`;
    await look();
  };
  const report = (error) => {
    find("answer").textContent = error.message;
  };
  for (let digit = 0; digit < 10; digit++) {
    const button = document.createElement("button");
    button.textContent = digit;
    button.addEventListener("click", () => teach(digit).catch(report));
    find("digits").append(button);
  }
  find("clear").addEventListener("click", () => clear(canvas));
  clear(canvas);
  drawOn(canvas, () => look().catch(report));
  find("answer").textContent = "Draw a digit.";
}

if (typeof document === "undefined") {
  module.exports = { trainRows };
} else {
  main().catch((error) => {
    find("answer").textContent = error.message;
  });
}
