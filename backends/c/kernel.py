"""A kernel: one C function with constant shapes, its name, and the scratch memory that it wants.

Names follow one grammar: `pe_<dtype>_<op>[_<epilogue>][_<tile>]__<isa>_<hash>`, for example
`pe_f32_gemm_bias_relu_8x48__avx512_1f0c9a`. The hash is of the kernel's text, so that equal kernels
of different nodes have equal symbols and are compiled once, and a symbol always means one text.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.compiler.ir import BOOL, F32, I32, I64, DType, Value

SYMBOL = "PE_SYMBOL"
"""Stands for the kernel's own symbol in a prelude, for helpers that must not clash in a shard."""

UNUSED = "    (void)w, (void)scratch;"
"""Keeps -Wunused-parameter quiet in kernels that need no thread index or no scratch."""

C_TYPES: dict[DType, str] = {F32: "float", I32: "int32_t", I64: "int64_t", BOOL: "uint8_t"}


@dataclass(frozen=True)
class Parameter:
    """One pointer parameter of a kernel: its C element type, its name, whether it is written."""

    ctype: str
    name: str
    written: bool = False

    def __str__(self) -> str:
        return f"{'' if self.written else 'const '}{self.ctype} *{self.name}"


@dataclass(frozen=True)
class Kernel:
    """A C function ready to be put into a file.

    `declaration` has no semicolon. `scratch_bytes` is memory for the time of the call, aligned to
    PE_ALIGN, shared by all threads: per-thread parts are the kernel's own arithmetic.
    """

    symbol: str
    declaration: str
    source: str
    scratch_bytes: int = 0


def read(name: str, value: Value) -> Parameter:
    """A parameter for an operand that is only read."""
    return Parameter(C_TYPES[value.dtype], name)


def write(name: str, value: Value) -> Parameter:
    """A parameter for a result, or for an operand that is updated in place."""
    return Parameter(C_TYPES[value.dtype], name, written=True)


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
    arguments = ", ".join(["pe_worker *w", *map(str, parameters), "void *scratch"])
    lines = "\n".join(f"    {line}" if line else "" for line in body)
    unnamed = f"{prelude}\nvoid {SYMBOL}({arguments}) {{\n{UNUSED}\n{lines}\n}}\n"
    digest = hashlib.sha256(unnamed.encode()).hexdigest()[:10]
    symbol = f"{name}__{isa}_{digest}"
    return Kernel(
        symbol=symbol,
        declaration=f"void {symbol}({arguments})",
        source=unnamed.replace(SYMBOL, symbol).lstrip("\n"),
        scratch_bytes=scratch_bytes,
    )


def align(size: int, alignment: int = 64) -> int:
    """The size rounded up to the alignment."""
    return -(-size // alignment) * alignment
