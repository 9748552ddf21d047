"""A kernel: one C function with constant shapes, its name, and its scratch memory.

Names follow one grammar: `pe_<dtype>_<op>[_<epilogue>][_<tile>]__<isa>_<hash>`, for example
`pe_f32_gemm_bias_relu_8x48__avx512_1f0c9a`. The hash is of the kernel's text, so that equal kernels
of different nodes have equal symbols and are compiled once, and a symbol always means one text.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pockengine.backends.native.numbers import (
    NUMBERS_PARAMETER,
    PARAMETER,
    Draft,
    closed,
    draft_of,
    of_one_shape,
)
from pockengine.backends.native.scalars import c_scalar
from pockengine.backends.native.text import Code, Text, fill, joined
from pockengine.compiler.ir import Value

SYMBOL = "PE_SYMBOL"
"""Placeholder of the kernel's symbol in a prelude, for helpers whose names must be unique in a
shard.
"""

UNUSED = "    (void)w, (void)scratch;"
"""Avoids -Wunused-parameter in kernels without thread index or scratch."""


def note(text: str) -> Text:
    """Return a comment on its own line; omitted in a kernel for many shapes."""
    return of_one_shape(f"/* {text} */\n")


@dataclass(frozen=True)
class Parameter:
    """A pointer parameter of a kernel: C element type, name, and whether it is written.

    `alone`: no result aliases it, so its elements need not be reloaded.
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
    `preparation` its last parameter before the scratch is the form made by that kernel. Its `draft`
    leaves numbers open that need not be constant.
    """

    symbol: str
    declaration: str
    source: str
    scratch_bytes: int = 0
    preparation: "Kernel | None" = None
    draft: "KernelDraft | None" = None


@dataclass(frozen=True)
class KernelDraft:
    """A kernel with open numbers: its name without the shape, the ISA, its text."""

    name: str
    isa: str
    parameters: tuple[Parameter, ...]
    text: Draft

    @property
    def key(self) -> tuple[object, ...]:
        """Kernels with equal keys can share a function."""
        return self.name, self.isa, self.text.key


def read(name: str, value: Value) -> Parameter:
    """A parameter for a read-only operand."""
    return Parameter(c_scalar(value.dtype).ctype, name)


def write(name: str, value: Value) -> Parameter:
    """A parameter for a result, or for an operand that is updated in place."""
    return Parameter(c_scalar(value.dtype).ctype, name, written=True)


def define_kernel(
    name: str,
    isa: str,
    parameters: Sequence[Parameter],
    body: Sequence[Code],
    prelude: Code = "",
    scratch_bytes: int = 0,
    shape: str = "",
) -> Kernel:
    """Assemble a kernel from its parameters (operands, then results) and its body's lines.

    `name` and `shape` are the grammar's part before `__`; `prelude` (includes, macros, helpers) may
    use PE_SYMBOL for the symbol. The first parameter is always `pe_worker *w`, the last one `void
    *scratch`.
    """
    arguments = _arguments(parameters, PARAMETER)
    text = joined("\n", [prelude, _function(f"void {SYMBOL}", arguments, body)])
    draft = draft_of(text)
    kernel = _named(f"{name}_{shape}" if shape else name, isa, closed(arguments), closed(text))
    open_numbers = None if draft is None else KernelDraft(name, isa, tuple(parameters), draft)
    return replace(kernel, scratch_bytes=scratch_bytes, draft=open_numbers)


def shared_kernel(draft: KernelDraft, fields: Sequence[int | None]) -> Kernel:
    """Return the shared kernel with some numbers as arguments: the index of each, or None."""
    passed = [index for index in fields if index is not None]
    arguments = _arguments(draft.parameters, NUMBERS_PARAMETER if passed else "")
    return _named(draft.name, draft.isa, closed(arguments), draft.text.written(fields))


def _named(name: str, isa: str, arguments: str, unnamed: str) -> Kernel:
    """Give a kernel its symbol, of which its text so far has only the placeholder."""
    digest = hashlib.sha256(unnamed.encode()).hexdigest()[:10]
    symbol = f"{name}__{isa}_{digest}"
    return Kernel(
        symbol=symbol,
        declaration=f"void {symbol}({arguments})",
        source=unnamed.replace(SYMBOL, symbol).lstrip("\n"),
    )


def define_function(head: str, parameters: Sequence[Parameter], body: Sequence[Code]) -> Text:
    """Return a C function with a kernel's arguments; `head` is the text before them."""
    return _function(head, _arguments(parameters), body)


def _function(head: str, arguments: Code, body: Sequence[Code]) -> Text:
    lines = joined("\n", ["    " + line if line else "" for line in body])
    return fill("{}({}) {{\n{}\n{}\n}}\n", head, arguments, UNUSED, lines)


def _arguments(parameters: Sequence[Parameter], numbers: Code = "") -> Text:
    return joined(", ", ["pe_worker *w" + numbers, *map(str, parameters), "void *scratch"])


def align(size: int, alignment: int = 64) -> int:
    """The size rounded up to the alignment."""
    return -(-size // alignment) * alignment
