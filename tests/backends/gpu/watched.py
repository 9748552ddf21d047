"""Wrappers of this machine's driver libraries that count calls and simulate faults."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pockengine.backends.native.toolchain import find_toolchain
from pockengine.devices import load_device


def build_wrapper(source: Path, library: str, folder: Path, flags: Sequence[str] = ()) -> None:
    """Build the wrapper of a library into a folder; `flags` define the fault.

    This process has loaded the library, whose path the wrapper includes.
    """
    toolchain = find_toolchain(load_device("host"))
    command = [*toolchain.command, "-shared", "-fPIC", str(source), f'-DREAL="{_path(library)}"']
    command += [*flags, "-o", str(folder / library), "-ldl"]
    subprocess.run(command, check=True, env=toolchain.environment)


def _path(library: str) -> str:
    """Return the path of a loaded library, whose real name may have a longer version."""
    stem = re.escape(library.removesuffix(".1"))
    loaded = re.search(rf"/\S*/{stem}\S*", Path("/proc/self/maps").read_text("utf-8"))
    assert loaded is not None
    return loaded[0]
