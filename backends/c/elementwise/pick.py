"""Kernels of compile-time indices: pick, and the tables of indexed updates.

The indices are a constant table in the kernel. If channels are long, or indices form contiguous
runs, whole runs are copied; otherwise the compiler turns the loop into vector gathers.
"""

import math
from collections.abc import Sequence

from pockengine.backends.c.family import KernelFamily, plain_choice
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.native.kernel import SYMBOL, Kernel, define_kernel, read, write
from pockengine.backends.native.numbers import of_one_shape, passed, table
from pockengine.backends.native.scalars import c_scalar
from pockengine.backends.native.text import Code, fill
from pockengine.compiler.ir import Node
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device

TABLE = f"{SYMBOL}_index"
RUN_ELEMENTS = 12
"""Mean length of a run from which memcpy is faster than gathering the elements."""


def index_table(index: Sequence[int]) -> str:
    """The C definition of the index table named TABLE."""
    return _table(TABLE, index)


def runs_of(index: Sequence[int]) -> list[tuple[int, int]]:
    """Contiguous runs of the indices, as (first, count)."""
    runs: list[tuple[int, int]] = []
    for at in index:
        if runs and at == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((at, 1))
    return runs


def choose_pick(node: Node, device: Device, options: KernelOptions) -> Choice:
    """Choose between copies of runs and gathers; the spec is True for runs."""
    index = node.attrs["index"]
    behind = math.prod(node.operands[0].shape[node.attrs["axis"] + 1 :])
    by_runs = len(index) * behind >= RUN_ELEMENTS * len(runs_of(index))
    return plain_choice(node, device, "RUNS" if by_runs else "GATHER", spec=by_runs)


def emit_pick(node: Node, choice: Choice, device: Device) -> Kernel:
    """Emit pick: y[a, i, :] = x[a, index[i], :]; threads split the dimensions before the axis."""
    (x,), axis, index = node.operands, node.attrs["axis"], node.attrs["index"]
    behind = math.prod(x.shape[axis + 1 :])
    runs, by_runs = runs_of(index), choice.spec
    ctype = c_scalar(x.dtype).ctype
    body = [
        fill("const pe_range share = pe_split(w, {}, 1);", passed(math.prod(x.shape[:axis]))),
        "for (ptrdiff_t row = share.begin; row < share.end; row++) {",
        fill("    const {} *from = x + row * {};", ctype, passed(x.shape[axis] * behind)),
        fill("    {} *to = y + row * {};", ctype, passed(len(index) * behind)),
        *(_copy_runs(runs, behind, ctype) if by_runs else _gather(index, behind)),
        "}",
    ]
    tables = _run_tables(runs, behind) if by_runs else [index_table(index)]
    shape = "x".join(map(str, node.result.shape))
    return define_kernel(
        name=f"pe_{x.dtype.value}_pick",
        shape=shape,
        isa=device.cpu.isa,
        parameters=[read("x", x), write("y", node.result)],
        body=body,
        prelude=of_one_shape("\n".join([f"/* pick of {list(x.shape)}, axis {axis} */", *tables])),
    )


PICK = KernelFamily(choose_pick, emit_pick)


def _gather(index: Sequence[int], behind: int) -> list[Code]:
    count, place = passed(len(index)), table(TABLE, index, in_body=True) + "[i]"
    loop = fill("    for (int i = 0; i < {}; i++) {{", count)
    if behind == 1:
        return [
            loop,
            fill("        to[i] = from[{}];", place),
            "    }",
        ]
    return [
        loop,
        f"        for (int b = 0; b < {behind}; b++) {{",
        fill("            to[i * {0} + b] = from[{1} * {0} + b];", behind, place),
        "        }",
        "    }",
    ]


def _copy_runs(runs: Sequence[tuple[int, int]], behind: int, ctype: str) -> list[Code]:
    """Copy run by run; runs of one length are copies of constant size."""
    firsts, lengths = _firsts(runs, behind), _lengths(runs, behind)
    first = table(f"{SYMBOL}_first", firsts, in_body=True) + "[i]"
    length: Code = str(lengths[0])
    size = length
    if len(set(lengths)) > 1:
        length = table(f"{SYMBOL}_length", lengths, in_body=True) + "[i]"
        size = "(size_t)" + length
    return [
        fill("    for (int i = 0; i < {}; i++) {{", passed(len(runs))),
        fill("        memcpy(to, from + {}, {} * sizeof({}));", first, size, ctype),
        fill("        to += {};", length),
        "    }",
    ]


def _firsts(runs: Sequence[tuple[int, int]], behind: int) -> list[int]:
    return [first * behind for first, _ in runs]


def _lengths(runs: Sequence[tuple[int, int]], behind: int) -> list[int]:
    return [count * behind for _, count in runs]


def _run_tables(runs: Sequence[tuple[int, int]], behind: int) -> list[str]:
    """Starts and lengths of runs, in elements."""
    tables = [_table(f"{SYMBOL}_first", _firsts(runs, behind))]
    lengths = _lengths(runs, behind)
    return tables if len(set(lengths)) == 1 else [*tables, _table(f"{SYMBOL}_length", lengths)]


def _table(name: str, numbers: Sequence[int]) -> str:
    rows = [", ".join(map(str, numbers[at : at + 16])) for at in range(0, len(numbers), 16)]
    text = ",\n".join(f"    {row}" for row in rows)
    return f"static const int32_t {name}[{len(numbers)}] = {{\n{text},\n}};"
