"""Kernels that move elements unchanged: one item per element of the result."""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate

from pockengine.backends.gpu.kernel import (
    SYMBOL,
    GpuKernel,
    Parameter,
    define_kernel,
    over,
)
from pockengine.backends.gpu.kernels.elementwise import index_table
from pockengine.backends.gpu.places import broadcast, coordinate, strided
from pockengine.backends.gpu.scalars import literal, scalar_of
from pockengine.backends.space import collapse, contiguous_strides
from pockengine.compiler.ir import DType, Node, Value


def movement_kernel(node: Node) -> GpuKernel:
    """Emit one of OPS."""
    lines, helpers = OPS[node.op](node)
    operands = [Parameter(moved(value), f"x{place}") for place, value in enumerate(node.operands)]
    parameters = [*operands, Parameter(moved(node.result), "y", written=True)]
    return define_kernel(node.op, parameters, [over(node.result.type.size, lines, helpers)])


def moved(value: Value) -> str:
    """Return the type for moving elements: 16-bit floats as plain integers in every language."""
    return "pe_u16" if value.dtype is DType.F16 else scalar_of(value.dtype).stored


def _copy(place: str) -> list[str]:
    return [f"y[i] = x0[{place}];"]


def _transpose(node: Node) -> tuple[list[str], str]:
    own, perm = contiguous_strides(node.operands[0].shape), node.attrs["perm"]
    sizes, (walk,), _ = collapse(node.result.shape, [tuple(own[axis] for axis in perm)])
    return _copy(strided("i", sizes, walk)), ""


def _broadcast(node: Node) -> tuple[list[str], str]:
    return _copy(broadcast("i", node.operands[0].shape, node.result.shape)), ""


def _reshape(node: Node) -> tuple[list[str], str]:
    return _copy("i"), ""


def _slice(node: Node) -> tuple[list[str], str]:
    own = contiguous_strides(node.operands[0].shape)
    start, step = node.attrs["start"], node.attrs["step"]
    walk = [stride * each for stride, each in zip(own, step, strict=True)]
    first = sum(stride * each for stride, each in zip(own, start, strict=True))
    return _copy(strided("i", node.result.shape, walk, first)), ""


def _reverse(node: Node) -> tuple[list[str], str]:
    shape, axes = node.result.shape, node.attrs["axes"]
    own = contiguous_strides(shape)
    walk = [-stride if axis in axes else stride for axis, stride in enumerate(own)]
    first = sum((shape[axis] - 1) * own[axis] for axis in axes)
    return _copy(strided("i", shape, walk, first)), ""


def _pick(node: Node) -> tuple[list[str], str]:
    axis, shape = node.attrs["axis"], node.result.shape
    own = contiguous_strides(node.operands[0].shape)
    strides = tuple(0 if place == axis else stride for place, stride in enumerate(own))
    looked_up = f"{SYMBOL}_index[{coordinate('i', shape, axis)}] * {own[axis]}"
    place = f"{strided('i', shape, strides)} + {looked_up}"
    return _copy(place), index_table(node.attrs["index"])


def _pad(node: Node) -> tuple[list[str], str]:
    x, y = node.operands[0].shape, node.result.shape
    own, low = contiguous_strides(x), node.attrs["low"]
    lines, inside, place = [], ["1"], ["0"]
    for axis, (size, before) in enumerate(zip(x, low, strict=True)):
        lines.append(f"const int c{axis} = {coordinate('i', y, axis)} - {before};")
        if y[axis] != size:
            inside.append(f"c{axis} >= 0 && c{axis} < {size}")
        place.append(f"c{axis} * {own[axis]}")
    value = literal(node.attrs["value"], node.result.dtype)
    lines.append(f"y[i] = {' && '.join(inside)} ? x0[{' + '.join(place)}] : {value};")
    return lines, ""


def _concat(node: Node) -> tuple[list[str], str]:
    axis, y = node.attrs["axis"], node.result.shape
    behind = math.prod(y[axis + 1 :])
    sizes = [value.shape[axis] for value in node.operands]
    lines = [
        f"const int before = i / {y[axis] * behind}, c = i / {behind} % {y[axis]};",
        f"const int rest = i % {behind};",
    ]
    starts = [0, *accumulate(sizes)]
    for part, size in enumerate(sizes):
        place = f"(before * {size} + c - {starts[part]}) * {behind} + rest"
        lines.append(
            f"if (c >= {starts[part]} && c < {starts[part + 1]}) {{ y[i] = x{part}[{place}]; }}"
        )
    return lines, ""


OPS: dict[str, Callable[[Node], tuple[Sequence[str], str]]] = {
    "transpose": _transpose,
    "broadcast_to": _broadcast,
    "reshape": _reshape,
    "slice": _slice,
    "reverse": _reverse,
    "pick": _pick,
    "pad": _pad,
    "concat": _concat,
}
"""Statements that compute element i, and the table they read."""
