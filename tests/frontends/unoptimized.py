"""Kernels that are compiled in one file without optimization, for tests of what precedes them.

Of a small net's compilation, clang takes four fifths of the processor time at -O3 in the usual
number of files. tests/backends/c and tests/models compare optimized kernels with the oracle and
with PyTorch.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = "pockengine.backends.native"
"""Its modules are loaded by name: tests that do not compile do not depend on them."""


@contextmanager
def unoptimized_kernels() -> Iterator[None]:
    """Compile kernels as one file with -O0; the runtime's objects are shared with other tests."""
    try:
        build, program = (importlib.import_module(f"{FOLDER}.{x}") for x in ("build", "program"))
    except ModuleNotFoundError:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "own_flags", _unoptimized(build))
        patch.setattr(program, "SHARDS", 1)
        yield


def _unoptimized(build: ModuleType) -> Any:
    """Return a function like `own_flags` of build.py, with the flag for kernels."""
    own_flags = build.own_flags

    def flags(source: Path, device: Any) -> tuple[str, ...]:
        kernels = source.stem.startswith(build.KERNELS)
        return (*own_flags(source, device), *(("-O0",) if kernels else ()))

    return flags
