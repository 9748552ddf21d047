"""Kernels of gather and scatter at run-time indices: take, take_along and others.

Reads at indices outside the axis are clamped and additions there dropped, so no data can make a
kernel access memory out of bounds. Additions to one element happen in one thread, in the order of
the indices: results do not depend on the number of threads.
"""

import math
from collections.abc import Sequence

from pockengine.backends.native.kernel import Kernel, define_kernel, read, write
from pockengine.backends.native.scalars import c_scalar
from pockengine.backends.space import contiguous_strides
from pockengine.compiler.ir import Node, Value
from pockengine.compiler.ops import lookup
from pockengine.devices.schema import Device

OPS = ("take", "take_dx", "take_along", "take_along_dx")


def gather_kernel(node: Node, device: Device) -> Kernel:
    """Emit an op of OPS."""
    source, index = node.operands
    whole = node.attrs.get("input_shape", source.shape)
    body = {"take": _take, "take_dx": _take_dx, "take_along": _along, "take_along_dx": _along_dx}
    names = ("dy", "dx") if node.op.endswith("_dx") else ("x", "y")
    parameters = [read(names[0], source), read("index", index), write(names[1], node.result)]
    return define_kernel(
        name=f"pe_{source.dtype.value}_{node.op}_{'x'.join(map(str, whole))}",
        isa=device.cpu.isa,
        parameters=parameters,
        body=body[node.op](node, whole),
        prelude=f"/* {node.op} of {list(whole)} at {index.type}, axis {node.attrs['axis']} */",
    )


def take_add_kernel(node: Node, device: Device) -> Kernel:
    """Emit `take_add`, whose result may overwrite x: then only changed elements are touched."""
    (x, dy, index), axis = node.operands, node.attrs["axis"]
    names = zip(("x", "dy", "index"), node.operands, strict=True)
    return define_kernel(
        name=f"pe_{x.dtype.value}_{node.op}_{'x'.join(map(str, x.shape))}",
        isa=device.cpu.isa,
        parameters=[*(read(name, value) for name, value in names), write("y", node.result)],
        body=_scatter(node, x.shape, "y[{at}] += dy[{of}];", "y[{at}] = x[{at}];", unless="y == x"),
        prelude=f"/* {node.op} of {dy.type} to {x.type} at {index.type}, axis {axis} */",
    )


def take_update_kernel(node: Node, device: Device) -> Kernel:
    """Emit `take_update`: only the read rows are touched, each once per occurrence."""
    param, dy, index, lr = node.operands
    names = zip(("dy", "index", "lr"), (dy, index, lr), strict=True)
    return define_kernel(
        name=f"pe_{param.dtype.value}_{node.op}_{'x'.join(map(str, param.shape))}",
        isa=device.cpu.isa,
        parameters=[write("x", param), *(read(name, value) for name, value in names)],
        body=_scatter(node, param.shape, "x[{at}] -= lr[0] * dy[{of}];"),
        prelude=f"/* {node.op} of {param.type} at {index.type}, axis {node.attrs['axis']} */",
    )


def cache_update_kernel(node: Node, device: Device) -> Kernel:
    """Emit `cache_update`: only the slices at the indices are touched."""
    state, value, index = node.operands
    return define_kernel(
        name=f"pe_{state.dtype.value}_{node.op}_{'x'.join(map(str, state.shape))}",
        isa=device.cpu.isa,
        parameters=[write("x", state), read("value", value), read("index", index)],
        body=_scatter(node, state.shape, "x[{at}] = value[{of}];"),
        prelude=f"/* {node.op} of {state.type} at {index.type}, axis {node.attrs['axis']} */",
    )


def _clipped(size: int, at: str) -> list[str]:
    """Statements that set n to the index at a position, clamped to the axis."""
    return [
        f"int64_t n = index[{at}];",
        f"n = n < 0 ? 0 : n >= {size} ? {size - 1} : n;",
    ]


def _inside(size: int) -> list[str]:
    """Statements that set n to the index at position i, and skip one outside the axis."""
    return ["const int64_t n = index[i];", f"if (n < 0 || n >= {size}) continue;"]


def _split_shape(whole: Sequence[int], axis: int) -> tuple[int, int, int]:
    """Elements before the axis, along it, and after it."""
    return math.prod(whole[:axis]), whole[axis], math.prod(whole[axis + 1 :])


def _take(node: Node, whole: Sequence[int]) -> list[str]:
    """y[a, i, :] = x[a, index[i], :], copying whole rows of elements."""
    before, size, behind = _split_shape(whole, node.attrs["axis"])
    count = node.operands[1].type.size
    ctype = c_scalar(node.result.dtype).ctype
    return [
        f"const pe_range share = pe_split(w, {before * count}, 1);",
        "for (ptrdiff_t row = share.begin; row < share.end; row++) {",
        *(f"    {line}" for line in _clipped(size, f"row % {count}")),
        f"    const {ctype} *from = x + (row / {count} * {size} + n) * {behind};",
        f"    memcpy(y + row * {behind}, from, {behind} * sizeof({ctype}));",
        "}",
    ]


def _take_dx(node: Node, whole: Sequence[int]) -> list[str]:
    """dx[a, index[i], :] += dy[a, i, :], from zero."""
    return _scatter(node, whole, "dx[{at}] += dy[{of}];", "dx[{at}] = 0;")


def _scatter(
    node: Node, whole: Sequence[int], each: str, start: str = "", unless: str = ""
) -> list[str]:
    """Run a statement for each element of dy; `of` is its offset, `at` the offset in the whole
    tensor.

    Threads split the elements after the axis, or before it. `start` runs for the whole tensor
    before that, unless `unless` holds.
    """
    before, size, behind = _split_shape(whole, node.attrs["axis"])
    indices = lookup(node.op).indices
    assert indices is not None
    index = node.operands[indices.operand]
    count = index.type.size
    by_column = behind >= before
    extent, grain = (behind, 16) if by_column else (before, 1)
    a = "for (ptrdiff_t a = {begin}; a < {end}; a++) {{"
    outer = a.format(begin=0, end=before) if by_column else a.format(begin="s.begin", end="s.end")
    columns = ("s.begin", "s.end") if by_column else ("0", str(behind))
    inner = f"for (ptrdiff_t b = {columns[0]}; b < {columns[1]}; b++) {{"
    at, of = f"(a * {size} + n) * {behind} + b", f"(a * {count} + i) * {behind} + b"
    clear = [f"for (ptrdiff_t n = 0; n < {size}; n++) {{", f"    {inner}"]
    clear += [f"        {start.format(at=at)}", "    }", "}"]
    if unless:
        clear[0] = f"for (ptrdiff_t n = {unless} ? {size} : 0; n < {size}; n++) {{"
    return [
        f"const pe_range s = pe_split(w, {extent}, {grain});",
        outer,
        *(f"    {line}" for line in (clear if start else ())),
        f"    for (ptrdiff_t i = 0; i < {count}; i++) {{",
        *(f"        {line}" for line in _inside(size)),
        f"        {inner}",
        f"            {each.format(at=at, of=of)}",
        "        }",
        "    }",
        "}",
    ]


def _place(index: Value, whole: Sequence[int], axis: int) -> str:
    """Offset in the whole tensor for element i of the indices and n on the axis."""
    own, strides = contiguous_strides(index.shape), contiguous_strides(whole)
    terms = [f"n * {strides[axis]}"]
    for place, size in enumerate(index.shape):
        if place != axis and size > 1:
            terms.append(f"i / {own[place]} % {size} * {strides[place]}")
    return " + ".join(terms)


def _along(node: Node, whole: Sequence[int]) -> list[str]:
    """y[i] = x at i's position, with index[i] on the axis."""
    axis, index = node.attrs["axis"], node.operands[1]
    return [
        f"const pe_range share = pe_split(w, {index.type.size}, 16);",
        "for (ptrdiff_t i = share.begin; i < share.end; i++) {",
        *(f"    {line}" for line in _clipped(whole[axis], "i")),
        f"    y[i] = x[{_place(index, whole, axis)}];",
        "}",
    ]


def _along_dx(node: Node, whole: Sequence[int]) -> list[str]:
    """Zeros by all threads, then additions by one."""
    axis, index = node.attrs["axis"], node.operands[1]
    ctype = c_scalar(node.result.dtype).ctype
    return [
        f"const pe_range share = pe_split(w, {math.prod(whole)}, 16);",
        f"memset(dx + share.begin, 0, (size_t)(share.end - share.begin) * sizeof({ctype}));",
        "pe_barrier(w);",
        f"for (ptrdiff_t i = 0; w->index == 0 && i < {index.type.size}; i++) {{",
        *(f"    {line}" for line in _inside(whole[axis])),
        f"    dx[{_place(index, whole, axis)}] += dy[i];",
        "}",
    ]
