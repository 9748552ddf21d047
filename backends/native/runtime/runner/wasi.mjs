// Starts a WebAssembly program of WASI: node wasi.mjs PROGRAM [ARGUMENT]...
import { readFile } from "node:fs/promises";

const OLDEST = 18; // the first with WASI without a flag
const [program, ...rest] = process.argv.slice(2);

function refuse(message) {
  console.error(`error: ${message}`);
  process.exit(2);
}

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
const imports = { wasi_snapshot_preview1: wasi.wasiImport };
const { instance } = await WebAssembly.instantiate(await readFile(program), imports);
process.exitCode = wasi.start(instance);
