"""Kernels as one text of a language, with all that they include: what a driver's compiler takes."""

import re
from collections.abc import Iterable
from pathlib import Path

from pockengine.backends.gpu.kernel import GpuKernel

DIALECT = Path(__file__).parent / "dialect"

CUDA, OPENCL = "cuda", "opencl"
LANGUAGES = (CUDA, OPENCL)
"""Languages, by the names of their preludes."""

_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)


def source_of(kernels: Iterable[GpuKernel], language: str) -> str:
    """Return a prelude and kernels, each once, in the order of their symbols."""
    texts = {kernel.symbol: kernel.text for kernel in kernels}
    return _whole("\n".join([f'#include "{language}.h"', *(texts[key] for key in sorted(texts))]))


def _whole(text: str) -> str:
    """Put files in the places of their names."""
    return _INCLUDE.sub(lambda found: _whole((DIALECT / found[1]).read_text("utf-8")), text)
