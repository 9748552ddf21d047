"""Kernels that move elements without computing: transpose, concat, pad, slice, broadcast, reshape.

Each is a set of copies between strided boxes of elements: a box is copied run by run where its
innermost dimension is contiguous on both sides, else element by element, or, for f32 matrices, by
transposing blocks in registers. Broadcasts are elementwise kernels that compute nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.backends.c.elementwise import Pointwise, pointwise_kernel
from pockengine.backends.c.expression import scalar
from pockengine.backends.c.kernel import C_TYPES, Kernel, define_kernel, read, write
from pockengine.backends.c.loops import (
    Access,
    Body,
    Strides,
    broadcast_strides,
    collapse,
    contiguous_strides,
    space_of,
)
from pockengine.compiler.ir import F32, Node, Value
from pockengine.devices.schema import Device


@dataclass(frozen=True)
class Box:
    """Elements of one operand and where they go: sizes, strides and starts on both sides."""

    source: str
    sizes: Sequence[int]
    source_strides: Strides
    target_strides: Strides
    source_start: int = 0
    target_start: int = 0


def broadcast_kernel(node: Node, device: Device) -> Kernel:
    """Emit broadcast_to."""
    (x,), y = node.operands, node.result
    sizes, walks, _ = collapse(
        y.shape, [broadcast_strides(x.shape, y.shape), contiguous_strides(y.shape)]
    )
    space, walks = space_of(sizes, walks)
    body = Body({x: Access("x", x, walks[0])}, (), {}, [(x, Access("y", y, walks[1]))])
    parameters = (read("x", x), write("y", y))
    return pointwise_kernel(Pointwise("broadcast", parameters, space, body), device)


def transpose_kernel(node: Node, device: Device) -> Kernel:
    """Emit transpose."""
    (x,), y = node.operands, node.result
    own = contiguous_strides(x.shape)
    walk = tuple(own[axis] for axis in node.attrs["perm"])
    return _copies(node, [Box("x", y.shape, walk, contiguous_strides(y.shape))], device)


def reshape_kernel(node: Node, device: Device) -> Kernel:
    """Emit a reshape whose result does not share its operand's memory: a plain copy."""
    return _copies(node, [Box("x", (node.result.type.size,), (1,), (1,))], device)


def slice_kernel(node: Node, device: Device) -> Kernel:
    """Emit slice."""
    (x,), y = node.operands, node.result
    own = contiguous_strides(x.shape)
    start = sum(first * stride for first, stride in zip(node.attrs["start"], own, strict=True))
    walk = tuple(step * stride for step, stride in zip(node.attrs["step"], own, strict=True))
    return _copies(node, [Box("x", y.shape, walk, contiguous_strides(y.shape), start)], device)


def reverse_kernel(node: Node, device: Device) -> Kernel:
    """Emit reverse: a copy that walks backward along some axes."""
    x = node.operands[0]
    own, axes = contiguous_strides(x.shape), set(node.attrs["axes"])
    start = sum((x.shape[axis] - 1) * own[axis] for axis in axes)
    walk = tuple(-stride if axis in axes else stride for axis, stride in enumerate(own))
    return _copies(node, [Box("x", x.shape, walk, own, start)], device)


def concat_kernel(node: Node, device: Device) -> Kernel:
    """Emit concat: one box for each operand."""
    axis, whole = node.attrs["axis"], contiguous_strides(node.result.shape)
    boxes, at = [], 0
    for index, part in enumerate(node.operands):
        own = contiguous_strides(part.shape)
        boxes.append(Box(f"x{index}", part.shape, own, whole, 0, at * whole[axis]))
        at += part.shape[axis]
    return _copies(node, boxes, device)


def pad_kernel(node: Node, device: Device) -> Kernel:
    """Emit pad: the padding value everywhere, a barrier, then the operand."""
    (x,), y = node.operands, node.result
    whole = contiguous_strides(y.shape)
    start = sum(low * stride for low, stride in zip(node.attrs["low"], whole, strict=True))
    box = Box("x", x.shape, contiguous_strides(x.shape), whole, 0, start)
    return _copies(node, [box], device, fill=node.attrs["value"])


def _copies(node: Node, boxes: Sequence[Box], device: Device, fill: float | None = None) -> Kernel:
    names = list(dict.fromkeys(box.source for box in boxes))
    parameters = [read(name, value) for name, value in zip(names, node.operands, strict=True)]
    parameters.append(write("y", node.result))
    ctype = C_TYPES[node.result.dtype]
    lines = _fill(node.result, fill) if fill is not None else []
    block = 8 if device.cpu.vector_bytes >= 32 else 4
    for box in boxes:
        lines += _copy(box, ctype, block)
    shapes = ", ".join(str(list(value.shape)) for value in node.operands)
    return define_kernel(
        name=f"pe_{node.result.dtype.value}_{node.op}_{'x'.join(map(str, node.result.shape))}",
        isa=device.cpu.isa,
        parameters=parameters,
        body=lines,
        prelude=f'/* {node.op} of {shapes} */\n#include "pe_transpose.h"',
    )


def _fill(result: Value, number: float) -> list[str]:
    value = scalar(number) if result.dtype is F32 else str(int(number))
    return [
        f"const pe_range all = pe_split(w, {result.type.size}, 64);",
        "for (ptrdiff_t i = all.begin; i < all.end; i++) {",
        f"    y[i] = {value};",
        "}",
        "pe_barrier(w);",
    ]


def _copy(box: Box, ctype: str, block: int) -> list[str]:
    """The statements that copy one box, its outermost dimensions shared by the threads."""
    sizes, (source, target), _ = collapse(box.sizes, [box.source_strides, box.target_strides])
    if not sizes:
        sizes, source, target = [1], (1,), (1,)
    if source[-1] == 1 and target[-1] == 1:
        inner = 1
    elif _is_matrix(sizes, source, target) and ctype == "float":
        inner = 2
    else:
        inner = 0
    outer = len(sizes) - inner
    count = math.prod(sizes[:outer])
    if outer == 0 and inner == 1:
        return _split_run(box, sizes[0], ctype)
    if outer == 0 and inner == 2:
        return _split_matrix(box, sizes, source, target, block)
    at_source = " + ".join([str(box.source_start), *_offsets(sizes[:outer], source[:outer])])
    at_target = " + ".join([str(box.target_start), *_offsets(sizes[:outer], target[:outer])])
    return [
        "{",
        f"    const pe_range share = pe_split(w, {count}, 1);",
        "    for (ptrdiff_t i = share.begin; i < share.end; i++) {",
        f"        const {ctype} *from = {box.source} + {at_source};",
        f"        {ctype} *to = y + {at_target};",
        f"        {_inner(sizes[outer:], source[outer:], target[outer:], ctype, block)}",
        "    }",
        "}",
    ]


def _is_matrix(sizes: Sequence[int], source: Strides, target: Strides) -> bool:
    """Whether the last two dimensions are a contiguous matrix that is to be transposed."""
    return len(sizes) >= 2 and source[-2] == 1 and target[-1] == 1


def _inner(sizes: Sequence[int], source: Strides, target: Strides, ctype: str, block: int) -> str:
    if not sizes:
        return "*to = *from;"
    if len(sizes) == 1:
        return f"memcpy(to, from, {sizes[0]} * sizeof({ctype}));"
    rows, columns = sizes[1], sizes[0]
    return f"pe_transpose(to, {target[0]}, from, {source[1]}, {rows}, {columns}, {block});"


def _split_matrix(
    box: Box, sizes: Sequence[int], source: Strides, target: Strides, block: int
) -> list[str]:
    """One matrix: threads share the rows of the result."""
    return [
        "{",
        f"    const pe_range share = pe_split(w, {sizes[0]}, {block});",
        f"    pe_transpose(y + {box.target_start} + share.begin * {target[0]}, {target[0]},",
        f"                 {box.source} + {box.source_start} + share.begin, {source[1]},",
        f"                 {sizes[1]}, share.end - share.begin, {block});",
        "}",
    ]


def _split_run(box: Box, size: int, ctype: str) -> list[str]:
    return [
        "{",
        f"    const pe_range share = pe_split(w, {size}, 64);",
        f"    memcpy(y + {box.target_start} + share.begin,",
        f"           {box.source} + {box.source_start} + share.begin,",
        f"           (size_t)(share.end - share.begin) * sizeof({ctype}));",
        "}",
    ]


def _offsets(sizes: Sequence[int], strides: Strides) -> list[str]:
    """Terms of i's offset over these dimensions."""
    terms = []
    for place, size in enumerate(sizes):
        inner = math.prod(sizes[place + 1 :])
        at = f"i / {inner}" if inner > 1 else "i"
        wraps = place > 0
        terms.append(f"{at}{f' % {size}' if wraps else ''} * {strides[place]}")
    return terms
