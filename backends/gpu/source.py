"""Assemble kernels into one text of a language, with all included files."""

import re
from collections.abc import Iterable
from pathlib import Path

from pockengine.backends.gpu.kernel import HEAD, GpuKernel

DIALECT = Path(__file__).parent / "dialect"

CUDA, OPENCL = "cuda", "opencl"
LANGUAGES = (CUDA, OPENCL)
"""Languages, by the names of their preludes."""

_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)


def source_of(kernels: Iterable[GpuKernel], language: str) -> str:
    """Return a prelude and kernels, each once, in the order of their symbols."""
    chosen = {kernel.symbol: kernel for kernel in kernels}
    texts = [_text(chosen[key], language) for key in sorted(chosen)]
    return "\n".join([_whole(f'#include "{language}.h"'), *texts])


def _text(kernel: GpuKernel, language: str) -> str:
    """Return a kernel's text; in OpenCL it starts with pointers made from buffers and offsets."""
    text = _whole(kernel.text)
    if language != OPENCL:
        return text
    begin = " ".join(map(str, kernel.parameters)).replace("(", "_AT(")
    return text.replace(HEAD, f"{HEAD}\n    {begin}")


def _whole(text: str) -> str:
    """Replace include directives by the files' contents."""
    return _INCLUDE.sub(lambda found: _whole((DIALECT / found[1]).read_text("utf-8")), text)
