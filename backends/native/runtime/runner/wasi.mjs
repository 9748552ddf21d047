// Starts a WebAssembly program of WASI: node wasi.mjs PROGRAM [ARGUMENT]...
//
// A program with threads imports its memory. Each of its threads is a worker, which runs this
// script too, with another instance of the program over the same memory.
import { writeSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { Worker, isMainThread, workerData } from "node:worker_threads";

const OLDEST = 18; // the first with WASI without a flag
const PAGE = 65536;
const SHARED = { initial: (16 << 20) / PAGE, maximum: 2 ** 32 / PAGE - 1, shared: true }; // as linked

function refuse(message) {
  console.error(`error: ${message}`);
  process.exit(2);
}

// The system calls that a program imports: those of an instance of WASI, or, of a thread, none.
function importsOf(module, memory, calls) {
  const imports = { wasi_snapshot_preview1: {}, wasi: {}, env: { memory } };
  for (const { module: from, name, kind } of WebAssembly.Module.imports(module)) {
    if (kind === "function") {
      imports[from][name] = calls[name] ?? (() => { throw new Error(`${name} in a thread`); });
    }
  }
  return imports;
}

// A failed thread ends the program: others would wait for it.
function runThread({ module, memory, number, start }) {
  try {
    const { exports } = new WebAssembly.Instance(module, importsOf(module, memory, {}));
    exports.wasi_thread_start(number, start);
  } catch (error) {
    writeSync(2, `error: thread ${number}: ${error.stack}\n`);
    process.kill(process.pid, "SIGKILL");
  }
}

async function runProgram([program, ...rest]) {
  if (!program) {
    refuse("no program; usage: node wasi.mjs PROGRAM [ARGUMENT]...");
  }
  if (parseInt(process.versions.node) < OLDEST) {
    refuse(`this is Node ${process.versions.node}; install Node ${OLDEST} or later`);
  }
  const { WASI } = await import("node:wasi");
  const wasi = new WASI({
    version: "preview1",
    args: [program, ...rest],
    env: { PWD: process.cwd() },
    preopens: { "/": "/" },
    returnOnExit: true,
  });
  const module = await WebAssembly.compile(await readFile(program));
  const threaded = WebAssembly.Module.imports(module).some(({ kind }) => kind === "memory");
  const memory = threaded ? new WebAssembly.Memory(SHARED) : undefined;
  let threads = 0;
  const spawn = (start) => {
    threads += 1;
    new Worker(new URL(import.meta.url), { workerData: { module, memory, number: threads, start } });
    return threads;
  };
  const imports = importsOf(module, memory, { ...wasi.wasiImport, "thread-spawn": spawn });
  process.exitCode = wasi.start(new WebAssembly.Instance(module, imports));
}

if (isMainThread) {
  await runProgram(process.argv.slice(2));
} else {
  runThread(workerData);
}
