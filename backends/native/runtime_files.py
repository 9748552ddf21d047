"""The C files of the runtime, in this package and in an artifact's `code/runtime`.

core/     sessions and threads: no operating system
train/    files, checkpoints, a training's loop, memory of an operating system
text/     generation of text by a decoder, tokenizers
runner/   the program `pockengine-run`
simd/     vectors, for kernels
kernels/  templates of kernels
bare/     headers of the C library that a freestanding compiler lacks
gpu/      only in artifacts for a GPU: the sources of its backend
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

RUNTIME = Path(__file__).parent / "runtime"
CORE, TRAIN, TEXT, RUNNER, SIMD = "core", "train", "text", "runner", "simd"
BARE, GPU = "bare", "gpu"
LIBRARY, FIRMWARE = (CORE, TRAIN, TEXT, SIMD), (CORE, SIMD)
"""Runtime folders that a program links: with an operating system, and without."""
NODE_SCRIPT = RUNTIME / RUNNER / "wasi.mjs"
"""Node script that runs a WebAssembly program; artifacts include it beside the program."""
MAIN = "main"
"""Stem of the C file with the runner's `main`."""


def runtime_file(name: str) -> Path:
    """Return the path of a runtime file; names are unique across its folders."""
    (path,) = RUNTIME.glob(f"*/{name}")
    return path


def runtime_folders(runtime: Path = RUNTIME, *, freestanding: bool = False) -> list[Path]:
    """Return the include folders; those of the C library only if freestanding."""
    names = (CORE, TRAIN, TEXT, RUNNER, SIMD, GPU, *([BARE] if freestanding else []))
    return [runtime, *(runtime / name for name in names if (runtime / name).is_dir())]


def runtime_sources(runtime: Path = RUNTIME, *, freestanding: bool = False) -> list[Path]:
    """Return the C files of a program."""
    return sorted(runtime.glob(f"{CORE}/*.c" if freestanding else "*/*.c"))


def is_runner(source: Path) -> bool:
    """Whether a C file belongs to the runner only: libraries have no `main`, and print nothing."""
    return source.stem == MAIN or source.parent.name == RUNNER


def copy_runtime(folder: Path) -> None:
    """Put the runtime's sources beside generated code, so that it builds on its own."""
    for source in sorted(RUNTIME.rglob("*.[ch]")):
        target = folder / source.relative_to(RUNTIME)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def copy_for_gpu(sources: Iterable[Path], folder: Path) -> None:
    """Put the sources of a GPU's backend beside a copy of the runtime."""
    target = folder / GPU
    target.mkdir(parents=True, exist_ok=True)
    for source in sources:
        shutil.copyfile(source, target / source.name)
