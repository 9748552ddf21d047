"""The C compiler for a device: zig for all targets, or the system's compiler for this machine.

`zig cc` is a Python package that includes each target's libc. Without the package, programs for
this machine are built with its own gcc or clang.
"""

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from pockengine.backends.cache import own_cache
from pockengine.devices.isa import ISAS
from pockengine.devices.schema import Device
from pockengine.errors import BuildError, reason_of

ZIG_FOLDER = "zig"
"""Folder of zig's own cache, including the C libraries that it has built."""

PLAIN = "-fno-sanitize=undefined"
"""By default zig sanitizes C, and builds a runtime for it at link time: 4 s the first time."""

OLDEST = "-mcpu=baseline"
CHECKED = ("native", "x86_64", "aarch64")
"""Targets whose programs check for the CPU extensions they need."""
SYSTEM_OLDEST = {"x86_64": "-march=x86-64", "aarch64": "-march=armv8-a"}

SYSTEM_COMPILERS = ("gcc", "clang", "cc")


@dataclass(frozen=True)
class Toolchain:
    """The compiler and archiver commands for one device, and their environment.

    `version` is everything besides the arguments that affects the output: the compiler's version,
    and the CPU and system of `native`.
    """

    command: tuple[str, ...]
    archiver: tuple[str, ...]
    environment: dict[str, str]
    version: str
    oldest: tuple[str, ...] = ()
    """Arguments for the baseline CPU of the device's architecture."""


def find_toolchain(device: Device) -> Toolchain:
    """Return the compiler configured for a device; BuildError, which names a package to install, if
    there is none.
    """
    try:
        import ziglang
    except ImportError:
        return _system_toolchain(device)
    zig = str(Path(ziglang.__file__).parent / "zig")
    native = device.toolchain.target == "native"
    target = () if native else ("-target", device.toolchain.target)
    show = (zig, "build-exe", "--show-builtin", "-mcpu=native")
    folder = str(own_cache() / ZIG_FOLDER)
    own = {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}
    environment = own | dict(os.environ)
    by_compiler = native or device.toolchain.cpu == "native"
    machine = _output_digest(show, tuple(environment.items())) if by_compiler else ""
    named = (*target, f"-mcpu={device.toolchain.cpu}")
    oldest = (OLDEST,) if device.toolchain.target.startswith(CHECKED) else ()
    command = (zig, "cc", *named, PLAIN, *_flags(device))
    return Toolchain(
        command, (zig, "ar"), environment, version=f"{version('ziglang')} {machine}", oldest=oldest
    )


def _system_toolchain(device: Device) -> Toolchain:
    """Return gcc or clang configured for this machine."""
    if device.toolchain.target != "native":
        raise BuildError(
            f"no C compiler for {device.name}: install the package ziglang (pip install ziglang)"
        )
    found = [path for name in SYSTEM_COMPILERS if (path := shutil.which(name))]
    if not found or not shutil.which("ar"):
        raise BuildError(
            "no C compiler: install the package ziglang (pip install ziglang), or gcc or clang "
            "with binutils"
        )
    compiler, march = found[0], f"-march={device.toolchain.cpu}"
    macros = _output_digest((compiler, march, "-E", "-dM", "-x", "c", os.devnull))
    named = _output_digest((compiler, "--version"))
    command = (compiler, march, *_flags(device))
    oldest = tuple(SYSTEM_OLDEST[name] for name in (platform.machine(),) if name in SYSTEM_OLDEST)
    return Toolchain(command, ("ar",), dict(os.environ), version=f"{named} {macros}", oldest=oldest)


def _flags(device: Device) -> Sequence[str]:
    return (*device.toolchain.flags, *ISAS[device.cpu.isa].flags)


@cache
def _output_digest(
    command: tuple[str, ...], environment: tuple[tuple[str, str], ...] | None = None
) -> str:
    """Return a digest of a compiler's output about itself or the machine."""
    env = None if environment is None else dict(environment)
    try:
        done = subprocess.run(command, capture_output=True, check=False, env=env)
    except OSError as error:
        raise BuildError(f"cannot start the C compiler {command[0]}: {reason_of(error)}") from error
    if done.returncode != 0 or not done.stdout:
        answer = done.stderr.decode(errors="replace")
        raise BuildError(f"{command[0]} does not know this CPU: {answer}")
    return hashlib.sha256(done.stdout).hexdigest()
