"""A static aarch64 program without a C library, built from one C file."""

import os
import subprocess
import sys
from pathlib import Path


def build_guest(source: Path, folder: Path) -> str:
    """Build a program with zig and return its path; zig's caches go into the folder too."""
    program = folder / source.stem
    command = [
        *(sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl"),
        *("-mcpu=cortex_a72", "-O2", "-nostdlib", "-static", "-Wall", "-Wextra", "-Werror"),
        *(str(source), "-o", str(program)),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "ZIG_GLOBAL_CACHE_DIR": str(folder / "zig"),
        "ZIG_LOCAL_CACHE_DIR": str(folder / "zig"),
    }
    subprocess.run(command, env=environment, check=True, timeout=300)
    return str(program)
