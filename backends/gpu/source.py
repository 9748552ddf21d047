"""Assemble kernels into one text of a language, with all included files."""

import re
from collections.abc import Iterable
from pathlib import Path

from pockengine.backends.gpu.kernel import HEAD, GpuKernel
from pockengine.backends.gpu.slang_text import slang_text
from pockengine.errors import CompileError

DIALECT = Path(__file__).parent / "dialect"

CUDA, OPENCL, VULKAN = "cuda", "opencl", "vulkan"
LANGUAGES = (CUDA, OPENCL, VULKAN)
"""Languages of the backends with a driver, by the names of their preludes."""
METAL = "metal"
"""A language without a backend: `metal.py` returns its text."""

METAL_BUFFERS = 31
"""Buffers of a Metal kernel on every device."""

_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)


def source_of(kernels: Iterable[GpuKernel], language: str) -> str:
    """Return a prelude and kernels, each once, in the order of their symbols."""
    chosen = {kernel.symbol: kernel for kernel in kernels}
    texts = [_text(chosen[key], language) for key in sorted(chosen)]
    return "\n".join([_language_text(f'#include "{language}.h"', language), *texts])


def _text(kernel: GpuKernel, language: str) -> str:
    """Return a kernel's text with its parameters in the form of the language."""
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
    if language == METAL:
        return text.replace(HEAD, HEAD.replace("PE_PARAMETERS", _metal_parameters(kernel)))
    return text


def _metal_parameters(kernel: GpuKernel) -> str:
    """Return a kernel's numbered buffers and its position; CompileError for too many."""
    if len(kernel.parameters) > METAL_BUFFERS:
        raise CompileError(
            f"{kernel.symbol} has {len(kernel.parameters)} pointers, and a kernel of Metal takes "
            f"up to {METAL_BUFFERS} buffers; choose another language"
        )
    buffers = (
        f"PE_BUFFER({'' if parameter.written else 'const '}{parameter.ctype}, "
        f"{parameter.name}, {number})"
        for number, parameter in enumerate(kernel.parameters)
    )
    return ", ".join([*buffers, "PE_POSITION"])


def _language_text(text: str, language: str) -> str:
    whole = _whole(text)
    return slang_text(whole) if language == VULKAN else whole


def _whole(text: str) -> str:
    """Replace include directives by the files' contents."""
    return _INCLUDE.sub(lambda found: _whole((DIALECT / found[1]).read_text("utf-8")), text)
