"""A kernel: one node's text in the dialect, and the launches that run it.

A launch is a number of groups of a number of items. All launches of a kernel take the same
pointers: the node's operands, its results, and scratch memory if needed; nothing else, so a
captured step never changes. Equal kernels have equal symbols, by a hash of their text.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pockengine.backends.gpu.scalars import scalar_of
from pockengine.compiler.ir import Value
from pockengine.errors import CompileError

HEAD = "PE_KERNEL void PE_NAME(PE_PARAMETERS) {"
"""First line of every kernel, here and in the templates."""

SYMBOL = "PE_SYMBOL"
"""Placeholder of the kernel's own symbol in its text."""

MOST_ELEMENTS = (1 << 31) - (1 << 10)
"""Maximum elements of a tensor: indices are ints, and loops step once beyond the last."""

ITEMS = 128
"""Default items per group: four warps."""


@dataclass(frozen=True)
class Parameter:
    """A pointer parameter: element type, name, and whether it is written."""

    ctype: str
    name: str
    written: bool = False

    def __str__(self) -> str:
        return f"PE_{'WRITE' if self.written else 'READ'}({self.ctype}, {self.name})"


@dataclass(frozen=True)
class Launch:
    """A number of groups of a number of items of one function."""

    function: str
    groups: int
    items: int


@dataclass(frozen=True)
class GpuKernel:
    """Text of the dialect, and the launches in order.

    `tensor_cores`: it uses them.
    """

    symbol: str
    text: str
    parameters: tuple[Parameter, ...]
    launches: tuple[Launch, ...]
    scratch_bytes: int = 0
    tensor_cores: bool = False


@dataclass(frozen=True)
class Stage:
    """One function: a template of `dialect/` with its macros, or statements of its own.

    `helpers` are functions and tables before it. `resident` groups per unit bound the registers, if
    the language supports it.
    """

    groups: int
    items: int
    macros: Mapping[str, object]
    body: Sequence[str] = ()
    template: str = ""
    helpers: str = ""
    resident: int = 1


def read(name: str, value: Value) -> Parameter:
    """Return a parameter for a read-only operand."""
    return Parameter(scalar_of(value.dtype).stored, name)


def write(name: str, value: Value) -> Parameter:
    """Return a parameter for a result, or for an operand that is updated in place."""
    return Parameter(scalar_of(value.dtype).stored, name, written=True)


def define_kernel(
    title: str,
    parameters: Sequence[Parameter],
    stages: Sequence[Stage],
    scratch_bytes: int = 0,
    scratch_type: str = "float",
) -> GpuKernel:
    """Assemble a kernel; `title` names the computation in a word or two.

    Its symbol hashes its text and sizes: rows of one length share one text, for any count.
    """
    taken = [*parameters, *([Parameter(scratch_type, "scratch", True)] if scratch_bytes else [])]
    texts = [_stage(stage, number, taken) for number, stage in enumerate(stages)]
    unnamed = f"/* {title} */\n" + "\n".join(texts)
    sizes = [(stage.groups, stage.items) for stage in stages]
    digest = hashlib.sha256(f"{unnamed}{sizes}{scratch_bytes}".encode()).hexdigest()
    symbol = f"pe_gpu_{title}_{digest[:10]}"
    launches = tuple(
        Launch(f"{symbol}_{number}", stage.groups, stage.items)
        for number, stage in enumerate(stages)
    )
    for launch in launches:
        if launch.groups * launch.items > MOST_ELEMENTS:
            raise CompileError(
                f"{title} needs {launch.groups} groups of {launch.items} items; indices of "
                f"kernels go up to {MOST_ELEMENTS}: make the batch smaller"
            )
    text = unnamed.replace(SYMBOL, symbol)
    return GpuKernel(symbol, text, tuple(taken), launches=launches, scratch_bytes=scratch_bytes)


def over(elements: int, body: Sequence[str], helpers: str = "") -> Stage:
    """Return a stage that runs statements once per element, with number `i`."""
    head = [
        f"const int i = pe_group() * {ITEMS} + pe_item();",
        f"if (i >= {elements}) {{ return; }}",
    ]
    return Stage(-(-elements // ITEMS), ITEMS, {}, [*head, *body], helpers=helpers)


def block(lines: Sequence[str]) -> str:
    """Return statements as the body of a macro."""
    return " ".join(lines) or ";"


def _stage(stage: Stage, number: int, parameters: Sequence[Parameter]) -> str:
    macros: dict[str, object] = {
        "PE_NAME": f"{SYMBOL}_{number}",
        "PE_ITEMS": stage.items,
        "PE_BOUNDS": f"{stage.items}, {stage.resident}" if stage.resident > 1 else stage.items,
        "PE_PARAMETERS": ", ".join(map(str, parameters)),
        **stage.macros,
    }
    lines = [f"#define {name} {value}" for name, value in macros.items()]
    lines += [stage.helpers] if stage.helpers else []
    if stage.template:
        lines.append(f'#include "{stage.template}"')
    else:
        lines += [HEAD, *_indented(stage.body), "}"]
    lines += [f"#undef {name.partition('(')[0]}" for name in macros]
    return "\n".join(lines) + "\n"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
