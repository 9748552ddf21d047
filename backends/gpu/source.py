"""Assemble kernels into one text of a language, with all included files."""

import re
from collections.abc import Iterable
from pathlib import Path

from pockengine.backends.gpu.kernel import HEAD, GpuKernel
from pockengine.backends.gpu.slang_text import slang_text

DIALECT = Path(__file__).parent / "dialect"

CUDA, OPENCL, VULKAN = "cuda", "opencl", "vulkan"
LANGUAGES = (CUDA, OPENCL, VULKAN)
"""Languages, by the names of their preludes."""

_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)


def source_of(kernels: Iterable[GpuKernel], language: str) -> str:
    """Return a prelude and kernels, each once, in the order of their symbols."""
    chosen = {kernel.symbol: kernel for kernel in kernels}
    texts = [_text(chosen[key], language) for key in sorted(chosen)]
    return "\n".join([_language_text(f'#include "{language}.h"', language), *texts])


def _text(kernel: GpuKernel, language: str) -> str:
    """Return a kernel's text; in OpenCL and Vulkan it starts with its pointers."""
    text = _language_text(kernel.text, language)
    if language == OPENCL:
        begin = " ".join(map(str, kernel.parameters)).replace("(", "_AT(")
        return text.replace(HEAD, f"{HEAD}\n    {begin}")
    if language == VULKAN:
        pointers = (
            f"PE_POINTER({parameter.ctype}, {parameter.name}, {number})"
            for number, parameter in enumerate(kernel.parameters)
        )
        head = HEAD.replace("PE_PARAMETERS", "PE_ENTRY")
        return text.replace(HEAD, "\n    ".join([head, "PE_BEGIN", *pointers]))
    return text


def _language_text(text: str, language: str) -> str:
    whole = _whole(text)
    return slang_text(whole) if language == VULKAN else whole


def _whole(text: str) -> str:
    """Replace include directives by the files' contents."""
    return _INCLUDE.sub(lambda found: _whole((DIALECT / found[1]).read_text("utf-8")), text)
