"""Kernels of run-time indices, and scans along an axis; without atomics, so deterministic.

Reads at indices outside the axis are clamped, additions there dropped. If additions may collide,
one item makes them all, in the order of the indices: a launch before sorts these, so equal ones are
adjacent.
"""

import math
from collections.abc import Callable, Sequence

from pockengine.backends.gpu.kernel import (
    ITEMS,
    GpuKernel,
    Parameter,
    Stage,
    define_kernel,
    over,
    read,
    write,
)
from pockengine.backends.gpu.kernels.movement import moved
from pockengine.backends.gpu.places import coordinate
from pockengine.backends.gpu.scalars import scalar_of
from pockengine.backends.space import contiguous_strides
from pockengine.compiler.ir import I32, Node
from pockengine.compiler.ops import lookup

Parts = tuple[int, int, int, int]
"""Elements before an axis and along it, the indices, and the elements after it."""


def gather_kernel(node: Node) -> GpuKernel:
    """Emit one of OPS."""
    copies = not node.op.endswith("_dx")
    names = zip(lookup(node.op).operands, node.operands, strict=True)
    parameters = [read(name, value) for name, value in names]
    result = write("y", node.result)
    if copies:
        parameters[0] = Parameter(moved(node.operands[0]), parameters[0].name)
        result = Parameter(moved(node.result), "y", written=True)
    stage = over(node.result.type.size, OPS[node.op](node))
    return define_kernel(node.op, [*parameters, result], [stage])


def take_update_kernel(node: Node) -> GpuKernel:
    """Emit `take_update`: steps along gradients of rows, those of equal indices in sequence."""
    param, dy, index, lr = node.operands
    before, size, behind = _split(param.shape, node.attrs["axis"])
    parts = before, size, index.type.size, behind
    steps = _added(parts, "float x = param[at];", "x -= lr[0] * {dy};", "param[at] = x;")
    parameters = [write("param", param), read("dy", dy), read("index", index), read("lr", lr)]
    return _sorted_kernel(node.op, parameters, parts, [steps])


def take_dx_kernel(node: Node) -> GpuKernel:
    """Emit `take_dx`: zeros, then a sum per index that occurs."""
    (dy, index), y = node.operands, node.result
    before, size, behind = _split(y.shape, node.attrs["axis"])
    parts = before, size, index.type.size, behind
    register = scalar_of(y.dtype).register
    sums = _added(parts, f"{register} sum = 0;", "sum += {dy};", "y[at] = sum;")
    parameters = [read("dy", dy), read("index", index), write("y", y)]
    stages = [over(y.type.size, ["y[i] = 0;"]), sums]
    return _sorted_kernel(node.op, parameters, parts, stages)


def _sorted_kernel(
    title: str, parameters: Sequence[Parameter], parts: Parts, stages: Sequence[Stage]
) -> GpuKernel:
    """Return a kernel whose first launch sorts the indices: two ints of scratch for each."""
    _, size, count, _ = parts
    macros = {"PE_COUNT": count, "PE_SIZE": size}
    order = Stage(-(-count // ITEMS), ITEMS, macros, template="order.inc.h")
    scratch = 2 * I32.itemsize * count
    return define_kernel(title, parameters, [order, *stages], scratch, scratch_type="int")


def _added(parts: Parts, start: str, add: str, end: str) -> Stage:
    """Return a stage over dy, in which the first of equal sorted indices adds for all.

    `add` is a format of an element of dy; `at` is the written position along the axis.
    """
    before, size, count, behind = parts
    step = add.format(dy=f"dy[(a * {count} + scratch[p + n]) * {behind} + b]")
    body = [
        f"const int a = i / {count * behind}, p = i / {behind} % {count}, b = i % {behind};",
        f"const int many = scratch[{count} + p];",
        "if (many == 0) { return; }",
        f"const int at = (a * {size} + (int)index[scratch[p]]) * {behind} + b;",
        start,
        f"for (int n = 0; n < many; n++) {{ {step} }}",
        end,
    ]
    return over(before * count * behind, body)


def scan_kernel(node: Node) -> GpuKernel:
    """Emit argmax or cumsum: one item per line."""
    x = node.operands[0]
    before, size, behind = _split(x.shape, node.attrs["axis"])
    register = scalar_of(x.dtype).register
    first = f"const int first = i / {behind} * {size * behind} + i % {behind};"
    if node.op == "argmax":
        body = [
            first,
            "int found = 0;",
            f"{register} best = x[first];",
            f"for (int n = 0; n < {size}; n++) {{",
            f"    const {register} v = x[first + n * {behind}];",
            "    if (v > best || (v != v && best == best)) { best = v; found = n; }",
            "}",
            "y[i] = found;",
        ]
    else:
        place = f"{size - 1} - n" if node.attrs["reverse"] else "n"
        body = [
            first,
            f"{register} sum = 0;",
            f"for (int n = 0; n < {size}; n++) {{",
            f"    sum += x[first + ({place}) * {behind}];",
            f"    y[first + ({place}) * {behind}] = sum;",
            "}",
        ]
    parameters = [read("x", x), write("y", node.result)]
    return define_kernel(node.op, parameters, [over(before * behind, body)])


def _split(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """Return the elements before an axis, along it, and after it."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _take(node: Node) -> list[str]:
    _, size, behind = _split(node.operands[0].shape, node.attrs["axis"])
    count = node.operands[1].type.size
    return [
        f"const int n = pe_inside(index[i / {behind} % {count}], {size});",
        f"y[i] = x[(i / {count * behind} * {size} + n) * {behind} + i % {behind}];",
    ]


def _along(node: Node) -> list[str]:
    whole, axis, index = node.operands[0].shape, node.attrs["axis"], node.operands[1].shape
    strides = contiguous_strides(whole)
    terms = [f"pe_inside(index[i], {whole[axis]}) * {strides[axis]}"]
    for place in range(len(index)):
        if place != axis and index[place] > 1:
            terms.append(f"{coordinate('i', index, place)} * {strides[place]}")
    return [f"y[i] = x[{' + '.join(terms)}];"]


def _along_dx(node: Node) -> list[str]:
    whole, axis, index = node.result.shape, node.attrs["axis"], node.operands[1].shape
    strides = contiguous_strides(index)
    terms, inside = [f"q * {strides[axis]}"], ["1"]
    for place in range(len(index)):
        if place != axis:
            at = coordinate("i", whole, place)
            terms.append(f"{at} * {strides[place]}")
            inside += [f"{at} < {index[place]}"] if index[place] < whole[place] else []
    register = scalar_of(node.result.dtype).register
    return [
        f"{register} sum = 0;",
        f"for (int q = 0; q < {index[axis]} && {' && '.join(inside)}; q++) {{",
        f"    const int at = {' + '.join(terms)};",
        f"    if (index[at] == {coordinate('i', whole, axis)}) {{ sum += dy[at]; }}",
        "}",
        "y[i] = sum;",
    ]


OPS: dict[str, Callable[[Node], list[str]]] = {
    "take": _take,
    "take_along": _along,
    "take_along_dx": _along_dx,
}
"""Statements that compute element i of y."""
