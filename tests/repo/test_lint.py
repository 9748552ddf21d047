"""ruff, mypy and clang-format, with the settings of pyproject.toml and .clang-format."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pockengine.tests.repo.tree import ROOT, files


def run(*command: str, folder: Path = ROOT) -> None:
    result = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if result.returncode:
        pytest.fail(result.stdout + result.stderr, pytrace=False)


def program(package: str) -> str:
    """Return the path of a wheel's program, in bin/ beside its package."""
    folder = Path(str(importlib.import_module(package).__file__)).parent
    inside = folder / "data" / "bin" / package.replace("_", "-")
    return str(inside if inside.exists() else folder.parent / "bin" / package)


def test_ruff_finds_nothing() -> None:
    run(program("ruff"), "check", "--no-cache", ".")


def test_python_is_formatted() -> None:
    run(program("ruff"), "format", "--no-cache", "--check", "--diff", ".")


def test_c_is_formatted() -> None:
    sources = [str(path) for path in files("*.c", "*.h")]
    assert sources
    run(program("clang_format"), "--dry-run", "--Werror", *sources)


def test_types_are_complete() -> None:
    # As everywhere under Bazel, the package is named pockengine only from the folder above.
    cache_root = Path(os.environ.get("XDG_CACHE_HOME", os.environ["TEST_TMPDIR"]))
    settings = f"--config-file={ROOT / 'pyproject.toml'}"
    cache = f"--cache-dir={cache_root / 'pockengine' / 'mypy'}"
    command = (sys.executable, "-m", "mypy", settings, "-p", "pockengine")
    cached = subprocess.run((*command, cache), cwd=ROOT.parent, check=False, capture_output=True)
    if cached.returncode:  # mypy's cache sometimes misses modules of import cycles
        run(*command, "--no-incremental", folder=ROOT.parent)
