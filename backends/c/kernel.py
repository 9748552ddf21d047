"""A kernel: one C function with constant shapes, its name, and the scratch memory that it wants.

Names follow one grammar: `pe_<dtype>_<op>[_<epilogue>][_<tile>]__<isa>_<hash>`, for example
`pe_f32_gemm_bias_relu_8x48__avx512_1f0c9a`. The hash is of the kernel's text, so that equal kernels
of different nodes have equal symbols and are compiled once, and a symbol always means one text.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.backends.c.scalars import c_scalar
from pockengine.compiler.ir import Value

SYMBOL = "PE_SYMBOL"
"""Stands for the kernel's own symbol in a prelude, for helpers that must not clash in a shard."""

UNUSED = "    (void)w, (void)scratch;"
"""Keeps -Wunused-parameter quiet in kernels that need no thread index or no scratch."""


def note(text: str) -> str:
    """Return a comment of our own words, on its line."""
    return f"/* {text} */\n"


@dataclass(frozen=True)
class Parameter:
    """One pointer parameter of a kernel: its C element type, its name, whether it is written.

    `alone` says that no result shares its memory: what was read of it need not be read again.
    """

    ctype: str
    name: str
    written: bool = False
    alone: bool = False

    def __str__(self) -> str:
        alone = "restrict " if self.alone else ""
        return f"{'' if self.written else 'const '}{self.ctype} *{alone}{self.name}"


@dataclass(frozen=True)
class Kernel:
    """A C function ready to be put into a file.

    `declaration` has no semicolon. `scratch_bytes` is memory for the time of the call, aligned to
    PE_ALIGN, shared by all threads: per-thread parts are the kernel's own arithmetic. With a
    `preparation` its last parameter before the scratch is what that kernel makes of an operand.
    """

    symbol: str
    declaration: str
    source: str
    scratch_bytes: int = 0
    preparation: "Kernel | None" = None


def read(name: str, value: Value) -> Parameter:
    """A parameter for an operand that is only read."""
    return Parameter(c_scalar(value.dtype).ctype, name)


def write(name: str, value: Value) -> Parameter:
    """A parameter for a result, or for an operand that is updated in place."""
    return Parameter(c_scalar(value.dtype).ctype, name, written=True)


def define_kernel(
    name: str,
    isa: str,
    parameters: Sequence[Parameter],
    body: Sequence[str],
    prelude: str = "",
    scratch_bytes: int = 0,
) -> Kernel:
    """Put a kernel together from its parameters (operands, then results) and its body's lines.

    `name` is the grammar's part before `__`; `prelude` (includes, macros, helpers) may say
    PE_SYMBOL for the symbol. The first parameter is always `pe_worker *w`, the last one
    `void *scratch`.
    """
    unnamed = f"{prelude}\n{define_function(f'void {SYMBOL}', parameters, body)}"
    digest = hashlib.sha256(unnamed.encode()).hexdigest()[:10]
    symbol = f"{name}__{isa}_{digest}"
    return Kernel(
        symbol=symbol,
        declaration=f"void {symbol}({_arguments(parameters)})",
        source=unnamed.replace(SYMBOL, symbol).lstrip("\n"),
        scratch_bytes=scratch_bytes,
    )


def define_function(head: str, parameters: Sequence[Parameter], body: Sequence[str]) -> str:
    """Return a C function with a kernel's arguments; `head` is all that stands before them."""
    lines = "\n".join(f"    {line}" if line else "" for line in body)
    return f"{head}({_arguments(parameters)}) {{\n{UNUSED}\n{lines}\n}}\n"


def _arguments(parameters: Sequence[Parameter]) -> str:
    return ", ".join(["pe_worker *w", *map(str, parameters), "void *scratch"])


def align(size: int, alignment: int = 64) -> int:
    """The size rounded up to the alignment."""
    return -(-size // alignment) * alignment
