"""The Java program of the tests, which trains a small CNN, and its data."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2] / "bindings" / "java"
LIBRARY = ROOT / "library" / "src" / "main"
CHECKS = Path(__file__).parent / "java" / "Checks.java"
BATCH = 4


def call(*command: object, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def java_home() -> Path:
    """Return the home of `javac`'s JDK."""
    compiler = shutil.which("javac")
    if compiler is None:
        pytest.skip("javac is not installed (apt-get install openjdk-17-jdk-headless)")
    return Path(compiler).resolve().parents[1]


def compile_checks(folder: Path) -> Path:
    """Compile the library and the program; return the folder of their classes."""
    java_home()
    sources = [*sorted((LIBRARY / "java").rglob("*.java")), CHECKS]
    options = ("--release", "11", "-Xlint:all,-try", "-Werror")
    call("javac", *options, "-d", folder, *sources)
    return folder


def batches_of(steps: int) -> list[Mapping[str, np.ndarray]]:
    """Return random batches of the CNN."""
    rng = np.random.default_rng(0)
    return [
        {
            "x": rng.standard_normal((BATCH, 12, 12, 3)).astype(np.float32),
            "labels": rng.integers(0, 5, BATCH),
        }
        for _ in range(steps)
    ]


def bytes_of(batches: Sequence[Mapping[str, np.ndarray]]) -> bytes:
    """Return batches as the program reads them."""
    return b"".join(batch[name].tobytes() for batch in batches for name in batch)
