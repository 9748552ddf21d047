"""The program with a known answer, built for a device by zig and cached."""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pockengine.devices import Device
from pockengine.errors import BuildError, reason_of
from pockengine.folders import cache_folder

SOURCE = Path(__file__).parent / "known_answer.c"
ANSWER = b"known answer d131c89c -1.375\n"
FLAGS = ("-std=gnu11", "-O2", "-s")
BUILD_LIMIT_S = 600.0  # zig compiles a target's libc at its first use


def known_answer_program(
    device: Device, tell: Callable[[str], None] = lambda _: None
) -> Path | None:
    """Return the program for a device; None if it cannot be built.

    That is the case if the package ziglang is missing, the device runs only firmware, or the
    compiler fails or times out: none of these is the board's fault. `tell` is called before steps
    that take minutes.
    """
    if device.freestanding:
        return None
    from pockengine.backends.native.build import linker
    from pockengine.backends.native.toolchain import find_toolchain

    try:
        toolchain = find_toolchain(device)
    except BuildError:
        return None
    static = ("-static",) if "musl" in device.toolchain.target else ()
    flags = [*FLAGS, *static]
    recipe = [*toolchain.command[1:], *flags, toolchain.version, SOURCE.read_text()]
    key = hashlib.sha256("\0".join(recipe).encode()).hexdigest()[:16]
    program = cache_folder() / "farm" / "known-answer" / f"{device.name}-{key}"
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        made, binary = str(Path(folder) / "made.o"), Path(folder) / "made"
        compile_ = [*toolchain.command, *FLAGS, "-c", str(SOURCE), "-o", made]
        # As artifacts are linked: zig then builds one libc for both.
        link = [*linker(toolchain.command), *flags, made, "-o", str(binary)]
        tell(f"building the health check's program for {device.name}: minutes, the first time")
        environment = {**os.environ, **toolchain.environment}
        fault = _why_not_built(compile_, environment) or _why_not_built(link, environment)
        if fault is not None:
            tell(f"without that program: {fault}")
            return None
        binary.replace(program)
    return program


def _why_not_built(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Compile; return the error, or None."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=BUILD_LIMIT_S,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        return f"it could not be built: {reason_of(error)}"
    return f"it does not build: {done.stderr[-200:].strip()}" if done.returncode else None
