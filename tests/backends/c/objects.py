"""Programs of generated code and the runtime; each C file is compiled once for all tests.

Objects compiled with the same flags from the same content are taken from the backend's cache;
failed compilations are not cached.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from pockengine.backends.native.build import compile_object, linker
from pockengine.backends.native.includes import Includes
from pockengine.backends.native.runtime_files import runtime_folders
from pockengine.backends.native.toolchain import Toolchain


def build_executable(
    sources: Sequence[Path],
    compiler: Sequence[str],
    runtime: Path,
    out: Path,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Compile C files by a command and its flags, and link them into `out`."""
    includes = Includes(runtime_folders(runtime))
    objects = [_object(source, compiler, includes, environment) for source in sources]
    link(objects, compiler, out, environment)


def object_of(
    source: Path,
    compiler: Sequence[str],
    runtime: Path,
    folders: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
) -> Path:
    """Return the object of a C file; its headers are in its folder, the runtime's or `folders`.

    BuildError contains the compiler's output.
    """
    return _object(source, compiler, Includes([*runtime_folders(runtime), *folders]), environment)


def _object(
    source: Path,
    compiler: Sequence[str],
    includes: Includes,
    environment: Mapping[str, str] | None,
) -> Path:
    command, found = tuple(compiler), dict(environment or os.environ)
    toolchain = Toolchain(command, (), found, _identity(command))
    return compile_object(source, includes, (toolchain, ()))


def link(
    objects: Sequence[Path],
    compiler: Sequence[str],
    out: Path,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Link objects by the command and flags that compiled them."""
    command = [*linker(compiler), *map(str, objects), "-o", str(out), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[:4000]


@cache
def _identity(command: tuple[str, ...]) -> str:
    """Return a compiler's version, and its predefined macros for the machine and flags."""
    queries = (("--version",), ("-E", "-dM", "-x", "c", os.devnull))
    answers = (
        subprocess.run([*command, *more], capture_output=True, check=True) for more in queries
    )
    return "\0".join(done.stdout.decode() for done in answers)
