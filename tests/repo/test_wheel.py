"""A wheel and an editable install give the same `import pockengine`, data files included."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pockengine.backends.native.decoder import find_decoder
from pockengine.tests.repo.tree import ROOT, files

PACKAGED = ("backends", "cli", "compiler", "devices", "farm", "finetune", "frontends", "models")
MOST_BYTES = 5 << 19  # code is 1.8 MB of it; no data set or picture is included
DECODER = "pockengine/backends/native/stb/stb_image.h"
PROBE = """
import pathlib, pockengine, pockengine.api, pockengine.backends.native
from pockengine.devices.schema import load_device
runtime = pathlib.Path(pockengine.backends.native.__file__).parent / "runtime"
assert (runtime / "core" / "pe.h").exists() and list((runtime / "kernels").glob("*.h"))
assert load_device("rpi4").cpu.isa == "neon"
print(pathlib.Path(pockengine.__file__).parent)
"""
COMMANDS = """
import sys
from pockengine.cli.commands import ROWS
from pockengine.cli.main import main
sys.stderr = sys.stdout
for name in ROWS:
    print("command", name)
    sys.argv = ["pockengine", name, "--help"]
    try:
        main()
    except SystemExit as ended:
        print("status", ended.code, flush=True)
"""
"""Prints the help of each command. One process imports each module once."""


def packaged_files() -> Iterator[str]:
    """Yield every file that users need: all files of the packages except BUILD files and notes."""
    for path in files("*.py", "*.toml", "*.c", "*.h", "*.sh", "*.lock"):
        of_the_root = len(path.parts) == 1 and path.suffix == ".py" and path.name != "setup.py"
        if path.parts[0] in PACKAGED or of_the_root:
            yield f"pockengine/{path}"


def make_environment(folder: Path) -> Path:
    """Create an empty virtual environment; return its site-packages."""
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True, timeout=60)
    return next(folder.glob("lib/python3*/site-packages"))


def build(kind: str, source: Path, output: Path) -> Path:
    """Call setuptools offline, as pip would; return the wheel."""
    output.mkdir()
    call = f"from setuptools import build_meta; build_meta.{kind}({str(output)!r})"
    command = [sys.executable, "-c", call]
    result = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return next(output.glob("*.whl"))


def imported_from(environment: Path) -> Path:
    """Import pockengine there, with locked packages and without this checkout; return its path."""
    result = call_there(environment, "-c", PROBE)
    assert result.returncode == 0, result.stderr
    return Path(result.stdout.strip())


def call_there(environment: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in an environment's folder, with the installed packages on its path."""
    locked = [path for path in sys.path if "site-packages" in path]
    command = [str(environment / "bin" / "python"), *arguments]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(locked)}
    return subprocess.run(command, cwd=environment, env=variables, capture_output=True, text=True)


def every_command_starts(environment: Path) -> None:
    """Check that each command of the console script prints its help, or names a missing extra."""
    ran = call_there(environment, "-c", COMMANDS)
    assert ran.returncode == 0, ran.stderr
    commands = re.findall(r"^command (\S+)\n(.*?)^status (.*?)$", ran.stdout, re.DOTALL | re.M)
    assert [name for name, *_ in commands] == re.findall(r"^command (\S+)$", ran.stdout, re.M)
    assert "compile" in [name for name, *_ in commands]
    for name, printed, status in commands:
        lacks = f"pockengine: pockengine {name} needs "
        started = status == "0" and "Usage:" in printed
        assert started or status.startswith(lacks), f"{name}: {printed}{status}"


@pytest.fixture(name="source")
def copy_of_the_source(tmp_path: Path) -> Path:
    """Return a writable copy, as setuptools builds in the source tree.

    Bazel's output links (gigabytes behind each) and git's store are not copied.
    """
    ignored = shutil.ignore_patterns("bazel-*", ".git", "__pycache__")
    return Path(shutil.copytree(ROOT, tmp_path / "source", ignore=ignored))


def test_wheel_contains_all_files_and_imports(source: Path, tmp_path: Path) -> None:
    wheel = build("build_wheel", source, tmp_path / "wheel")
    site = make_environment(tmp_path / "environment")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
        archive.extractall(site)

    assert not set(packaged_files()) - packed
    assert (DECODER in packed) == (find_decoder() is not None)
    assert wheel.stat().st_size < MOST_BYTES
    assert not [name for name in packed if name.startswith("pockengine/tests")]
    assert imported_from(tmp_path / "environment") == site / "pockengine"
    every_command_starts(tmp_path / "environment")


def test_editable_install_imports_the_source(source: Path, tmp_path: Path) -> None:
    wheel = build("build_editable", source, tmp_path / "wheel")
    site = make_environment(tmp_path / "environment")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)

    assert imported_from(tmp_path / "environment") == source
