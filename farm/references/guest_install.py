"""Frameworks for the emulated board: an aarch64 Python and packages in the user's cache.

A root file system of Debian's packages by mmdebstrap, only extracted and never entered, and the
wheels of guest_FRAMEWORK.lock, pinned by hash: 1.3 GB for TensorFlow, 0.6 for PyTorch, 0.3 for MNN.
Our runtimes (onnx, tflite, tvm) are installed in the same way. The machine itself is not changed,
except that the package mmdebstrap is installed if missing.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pockengine.errors import FarmError
from pockengine.farm.progress import step
from pockengine.files import place_once
from pockengine.folders import cache_folder

RELEASE, MIRROR = "bookworm", "http://deb.debian.org/debian"
PACKAGES = "python3.11,python3-distutils,libstdc++6"
PYTHON = "usr/bin/python3.11"
# chrootless: needs no root and no emulation, since nothing is configured in there.
DEBOOTSTRAP = ("mmdebstrap", "--mode=chrootless", "--variant=extract", "--architectures=arm64")
WHEEL_OPTIONS = (
    "--no-deps",
    "--no-compile",
    "--only-binary=:all:",
    "--require-hashes",
    "--no-warn-script-location",
    "--python-version=3.11",
    "--implementation=cp",
    *("--abi=cp311", "--abi=abi3", "--abi=none"),
    *("--platform=manylinux2014_aarch64", "--platform=manylinux_2_17_aarch64"),
)


NEWER_PLATFORMS = {
    "onnx": ("--platform=manylinux_2_28_aarch64", "--platform=manylinux_2_26_aarch64"),
    "tflite": ("--platform=manylinux_2_34_aarch64",),
    "tvm": ("--platform=manylinux_2_28_aarch64",),
}
"""Wheels for a younger C library than those above; the release has 2.36."""


@dataclass(frozen=True)
class GuestPython:
    """An aarch64 root file system and the folder of its Python's packages."""

    root: Path
    packages: Path

    @property
    def python(self) -> Path:
        """The interpreter, an aarch64 program."""
        return self.root / PYTHON


def lock_file(framework: str) -> Path:
    """Return the file that pins a framework's wheels."""
    return Path(__file__).with_name(f"guest_{framework}.lock")


def lock_digest(framework: str) -> str:
    """Return the hash of everything that determines the installation."""
    lock = lock_file(framework).read_text()
    recipe = "\n".join([RELEASE, PACKAGES, *DEBOOTSTRAP, *_wheel_options(framework), lock])
    return hashlib.sha256(recipe.encode()).hexdigest()[:16]


def _wheel_options(framework: str) -> tuple[str, ...]:
    return (*WHEEL_OPTIONS, *NEWER_PLATFORMS.get(framework, ()))


def install_guest_python(framework: str = "tensorflow") -> GuestPython:
    """Return a framework's aarch64 Python; install it first if it is missing.

    Raises FarmError with the failing tool's last words; a half installation is never used.
    """
    folder = cache_folder() / f"guest-{framework}" / lock_digest(framework)
    place_once(folder, lambda made: _install(framework, made))
    return GuestPython(folder / "root", folder / "packages")


def _install(framework: str, folder: Path) -> None:
    """Fill a folder with the installation."""
    _ensure_mmdebstrap()
    with step("aarch64 Python: a root file system by mmdebstrap (77 MB)"):
        include = [f"--include={PACKAGES}", RELEASE, str(folder / "root"), MIRROR]
        _run([*DEBOOTSTRAP, *include], "the aarch64 root file system")
    with step(f"aarch64 {framework}: its wheels by pip"):
        wheels = ["--target", str(folder / "packages"), "-r", str(lock_file(framework))]
        options = _wheel_options(framework)
        _run([*_pip(), "install", "-q", *options, *wheels], f"{framework} for aarch64")


def _ensure_mmdebstrap() -> None:
    """Install mmdebstrap with apt if it is missing."""
    if shutil.which("mmdebstrap") is not None:
        return
    root = [] if os.geteuid() == 0 else ["sudo"]
    packages = ["mmdebstrap", "debian-archive-keyring"]
    with step("mmdebstrap: apt-get install"):
        _run([*root, "apt-get", "-q", "update"], "mmdebstrap")
        command = ["apt-get", "-q", "install", "-y", "--no-install-recommends", *packages]
        _run([*root, *command], "mmdebstrap")


def _pip() -> list[str]:
    """Return a pip that works; Bazel's own interpreters have none, the machine's usually does."""
    beside = Path(sys.base_prefix) / "bin" / "python3"
    for python in (sys.executable, str(beside), shutil.which("python3"), "/usr/bin/python3"):
        if python is None or not Path(python).exists():
            continue
        command = [python, "-I", "-m", "pip"]
        done = subprocess.run([*command, "--version"], capture_output=True, check=False)
        if done.returncode == 0:
            return command
    raise FarmError("no Python on this machine has pip; run: apt-get install python3-pip")


def _run(command: Sequence[str], purpose: str) -> None:
    """Run a tool quietly; FarmError with the end of its output if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise FarmError(f"{purpose}: {command[0]} is not installed") from None
    if done.returncode != 0:
        words = (done.stdout + done.stderr).strip()[-1200:]
        raise FarmError(f"{purpose} could not be installed; {command[0]} said:\n{words}")
