"""Compile and link generated code with the toolchain of a device.

Objects are cached by content: equal source, included headers, flags, compiler and CPU give the same
object. So a changed model recompiles only the shards whose kernels changed, and a changed header
only the files that include it. An entry's name includes the digest of the object, so a damaged one
is detected and recompiled. The cache is private to the user, because its objects are linked into
programs.
"""

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path

from pockengine.backends.cache import own_cache
from pockengine.backends.native.decoder import find_decoder
from pockengine.backends.native.includes import Includes
from pockengine.backends.native.runtime_files import (
    NODE_SCRIPT,
    is_runner,
    runtime_folders,
    runtime_sources,
)
from pockengine.backends.native.toolchain import ZIG_FOLDER, Toolchain, find_toolchain
from pockengine.backends.protocol import Built, Progress
from pockengine.devices.host import detect_cores, detect_memory
from pockengine.devices.schema import Device
from pockengine.errors import BuildError, reason_of
from pockengine.folders import cache_folder

FLAGS = (
    "-std=gnu11",
    "-O3",
    "-g0",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-Wno-psabi",
    "-Werror=undef",
)

DECODER = "pe_picture_decode"
"""The name of the C file that includes stb_image.h."""

OWN_FLAGS = {
    # A hostile JPEG makes sums overflow; stb_image.h tests undefined macros.
    DECODER: ("-Os", "-fwrapv", "-Wno-undef"),
    "pe_picture_fit": ("-ffp-contract=off",),  # as Pillow rounds
}
"""Extra flags of some C files, by file stem."""

CPU_CHECKS = ("pe_cpu", "pe_runner_cpu")
"""C files that run where kernels cannot."""

KERNELS = "kernels_"
"""Prefix of the C files with performance-critical code."""

FREESTANDING = (
    "-ffreestanding",
    "-ffunction-sections",
    "-fdata-sections",
    "-fomit-frame-pointer",
    "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables",
    "-fno-stack-protector",
)
"""Extra flags without an operating system."""

COMPILER_BYTES = 1 << 29
PARALLEL = max(1, min(detect_cores(), detect_memory() // COMPILER_BYTES))
"""Compilers at a time: one a core, as far as memory goes; each may take hundreds of megabytes."""

SHARED_LIBC = "aarch64-linux-musl"
"""The target whose libc is built once for all of its CPUs."""

WASM_SUFFIX = ".wasm"
WASM_STACK = 1 << 20
"""Bytes of a module's stack, as of other threads (pe_threads.h); zig's default is 16 MB."""
WASM_PAGE = 1 << 16
WASM_THREADS = ("-mthread-model", "posix")
"""Without it, clang replaces atomic operations by plain ones."""
SHARED_MEMORY = (
    "-Wl,--import-memory",
    "-Wl,--export-memory",
    "-Wl,--shared-memory",
    f"-Wl,--initial-memory={16 << 20}",
    f"-Wl,--max-memory={(4 << 30) - WASM_PAGE}",
)
"""Flags of a module with threads. JavaScript makes its memory, of the same sizes (wasi.mjs); zig
 rejects 4 GB."""

ERROR_LINES = 12
UNKNOWN_TARGET = r"error: unknown CPU|unable to parse target query"
"""Errors of zig."""


def build(
    code: Path,
    device: Device,
    out: Path,
    progress: Progress | None = None,
    libraries: Sequence[str] = (),
) -> Built:
    """Compile every C file of `code` and of its folder `runtime`, and link them into `out`.

    Only this machine gets a library, for sessions in Python; a device without an operating system
    cannot start a program, and gets only the archive of `package`. `libraries` are additional
    system libraries. BuildError has the first lines of the compiler's output.
    """
    tell = progress or (lambda _: None)
    objects = compile_all(code, device, tell)
    if device.freestanding:
        return Built()
    out.mkdir(parents=True, exist_ok=True)
    executable = out / f"pockengine-run{WASM_SUFFIX if device.wasm else ''}"
    tell(f"linking {executable.name}")
    toolchain = find_toolchain(device)
    _link(
        toolchain,
        [made for _, made in objects],
        executable,
        (*link_flags(device), *_link_options(libraries)),
    )
    if device.wasm:
        shutil.copyfile(NODE_SCRIPT, out / NODE_SCRIPT.name)
    if device.toolchain.target != "native":
        return Built(executable, None)
    library = out / "libprogram.so"
    made = [made for source, made in objects if not is_runner(source)]
    link_library(device, made, library, libraries)
    return Built(executable, named_by_content(library))


def compile_all(
    code: Path, device: Device, tell: Progress = lambda _: None
) -> list[tuple[Path, Path]]:
    """Compile every C file of `code` and of its folder `runtime`; return each with its object."""
    toolchain = find_toolchain(device)
    runtime, freestanding = code / "runtime", device.freestanding
    own = runtime_sources(runtime, freestanding=freestanding)
    sources, flags = sorted([*code.glob("*.c"), *own]), compile_flags(device)
    folders = runtime_folders(runtime, freestanding=freestanding)
    tell(f"compiling {len(sources)} files for {device.name}")

    shared, ended = Includes(folders), count(1)

    def compile_one(source: Path) -> Path:
        decoder = find_decoder() if source.stem == DECODER else None
        includes = Includes([*folders, decoder.parent]) if decoder else shared
        oldest = toolchain.oldest if source.stem in CPU_CHECKS else ()
        how = toolchain, (*flags, *own_flags(source, device), *oldest)
        made = compile_object(source, includes, how, tell)
        tell(f"compiled {next(ended)} of {len(sources)} files for {device.name}")
        return made

    with ThreadPoolExecutor(PARALLEL) as pool:
        return list(zip(sources, pool.map(compile_one, sources), strict=True))


def own_flags(source: Path, device: Device) -> tuple[str, ...]:
    """Return extra flags of a C file: where flash holds the code, all but kernels is optimized
    for size.
    """
    small = device.flash_bytes and not source.stem.startswith(KERNELS)
    return (*OWN_FLAGS.get(source.stem, ()), *(("-Os",) if small else ()))


def compile_flags(device: Device) -> tuple[str, ...]:
    """Return the flags common to all C files."""
    fixed = tuple(flag for flag in FLAGS if flag != "-fPIC")
    if device.freestanding:
        return (*fixed, *FREESTANDING)
    if device.wasm:
        return (*fixed, *WASM_THREADS) if device.wasm_threads else fixed
    return FLAGS


def link_library(
    device: Device, objects: Sequence[Path], out: Path, libraries: Sequence[str] = ()
) -> None:
    """Link objects to a shared library with this soname."""
    named = (
        "-shared",
        f"-Wl,-soname,{out.name}",
        "-s",
        "-lm",
        "-lpthread",
        *_link_options(libraries),
    )
    _link(find_toolchain(device), objects, out, named)


def link_module(device: Device, objects: Sequence[Path], out: Path, exports: Sequence[str]) -> None:
    """Link objects to a WebAssembly module that exports these symbols and needs no import."""
    named = (f"-Wl,--export={name}" for name in exports)
    flags = ("-mexec-model=reactor", "-Wl,--gc-sections", *link_flags(device), *named)
    _link(find_toolchain(device), objects, out, flags)


def archive(device: Device, objects: Sequence[Path], out: Path) -> None:
    """Make a static library, without timestamps or owners."""
    toolchain = find_toolchain(device)
    _run(toolchain, [*toolchain.archiver, "rcsD", str(out), *map(str, objects)], out.name)


def named_by_content(library: Path) -> Path:
    """Rename a library by its content: a process loads each name only once, even if the file
    changes.
    """
    digest = hashlib.sha256(library.read_bytes()).hexdigest()[:16]
    return library.rename(library.with_name(f"libprogram-{digest}.so"))


def link_flags(device: Device) -> tuple[str, ...]:
    """Link flags: static if the libc is musl, so the program needs nothing of the board's
    system.
    """
    if device.wasm:
        memory = SHARED_MEMORY if device.wasm_threads else ()
        return ("-s", f"-Wl,-z,stack-size={WASM_STACK}", *memory)
    static = ("-static",) if "musl" in device.toolchain.target else ()
    return (*static, "-s", "-lm", "-lpthread")


def _link_options(libraries: Sequence[str]) -> list[str]:
    return [f"-l{name}" for name in libraries]


def compile_object(
    source: Path,
    includes: Includes,
    how: tuple[Toolchain, Sequence[str]],
    tell: Progress = lambda _: None,
) -> Path:
    """Return the object of one file for a compiler and flags, cached if possible."""
    toolchain, flags = how
    identity = [*toolchain.command[1:], *flags, toolchain.version, includes.digest(source)]
    text = source.read_bytes()
    key = hashlib.sha256("\0".join(identity).encode() + b"\0" + text).hexdigest()
    shelf = own_cache() / "objects" / key[:2]
    for entry in shelf.glob(f"{key}-*.o"):
        if entry.name == _entry_name(key, entry):
            return entry
    tell(f"compiling {source.name}")
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=shelf) as folder:
            made = Path(folder) / "made.o"
            compile_ = [*toolchain.command, *flags, *(f"-I{place}" for place in includes.folders)]
            compile_ += ["-c", str(source)]
            own = {**toolchain.environment, "ZIG_LOCAL_CACHE_DIR": folder}  # it caches objects too
            compiler = replace(toolchain, environment=own)
            _run(compiler, [*compile_, "-o", str(made)], source.name)
            return made.replace(shelf / _entry_name(key, made))
    except OSError as error:
        raise BuildError(f"cannot keep objects in {shelf}: {reason_of(error)}") from error


def _entry_name(key: str, path: Path) -> str:
    """Return the cache name of an object with this content."""
    with path.open("rb") as file:
        return f"{key}-{hashlib.file_digest(file, 'sha256').hexdigest()}.o"


def _link(toolchain: Toolchain, objects: Sequence[Path], out: Path, flags: Sequence[str]) -> None:
    command = [*linker(toolchain.command), *map(str, objects), "-o", str(out), *flags]
    try:
        _run(toolchain, command, out.name)
    except BuildError:
        if toolchain.environment.get("ZIG_GLOBAL_CACHE_DIR") != str(cache_folder() / ZIG_FOLDER):
            raise
        _with_new_libraries(toolchain, command, out.name)


def linker(command: Sequence[str]) -> list[str]:
    """Return the link command for a compile `command`.

    zig builds a target's libc for each `-mcpu`, which takes 75 s of one core. All AArch64 CPUs run
    the baseline libc; the time of a step is spent in kernels, which are compiled already.
    """
    if SHARED_LIBC not in command:
        return list(command)
    return ["-mcpu=baseline" if each.startswith("-mcpu=") else each for each in command]


def _with_new_libraries(toolchain: Toolchain, command: Sequence[str], what: str) -> None:
    """Link with libraries freshly built by zig, and keep them if that helps.

    zig does not verify its cache, so one damaged library would break every program.
    """
    try:
        new = Path(tempfile.mkdtemp(dir=cache_folder(), prefix=f"{ZIG_FOLDER}-"))
        folders = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(new))
        try:
            _run(
                replace(toolchain, environment={**toolchain.environment, **folders}), command, what
            )
            with tempfile.TemporaryDirectory(
                dir=cache_folder(), prefix=f"{ZIG_FOLDER}-"
            ) as damaged:
                (cache_folder() / ZIG_FOLDER).rename(Path(damaged) / ZIG_FOLDER)
                new.rename(cache_folder() / ZIG_FOLDER)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    except OSError as error:
        raise BuildError(
            f"cannot keep libraries in {cache_folder()}: {reason_of(error)}"
        ) from error


def _run(toolchain: Toolchain, command: Sequence[str], what: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=toolchain.environment, check=False
        )
    except OSError as error:
        raise BuildError(f"cannot start the C compiler {command[0]}: {reason_of(error)}") from error
    if done.returncode != 0:
        raise BuildError(f"{what} does not build (exit {done.returncode}):\n{_fault(done.stderr)}")


def _fault(printed: str) -> str:
    """Return the first lines of a compiler's output, and the fix of an unknown target or CPU.

    For these zig lists all that it knows, above or below the error.
    """
    lines = [line for line in printed.splitlines() if line.strip()]
    unknown = next((line for line in lines if re.search(UNKNOWN_TARGET, line)), None)
    if unknown is None:
        return "\n".join(lines[:ERROR_LINES])
    return (
        f"{unknown}\n`target` and `cpu` of [toolchain] in the device file are zig's: "
        "`python -m ziglang targets` lists them"
    )
