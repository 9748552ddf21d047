"""Kernels that only move elements: transpose, concat, pad, slice, broadcast, reshape.

Each is a set of copies between strided boxes of elements: a box is copied run by run where its
innermost dimension is contiguous on both sides, else element by element, or, for f32 matrices, by
transposing blocks in registers. Broadcasts are elementwise kernels that compute nothing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pockengine.backends.c.elementwise.elementwise import (
    Cut,
    Pointwise,
    cut_space,
    pointwise_kernel,
)
from pockengine.backends.c.elementwise.loops import Access, Body
from pockengine.backends.c.family import KernelFamily, plain_choice
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.native.expression import scalar
from pockengine.backends.native.kernel import Kernel, define_kernel, read, write
from pockengine.backends.native.scalars import c_scalar
from pockengine.backends.space import Strides, broadcast_strides, collapse, contiguous_strides
from pockengine.compiler.ir import F32, DType, Node, Value
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device

ELEMENT, RUN, MATRIX = 0, 1, 2
"""Number of inner dimensions that a copy moves at once: single elements, a run, a transposed
matrix.
"""
NAMES = ("ELEMENTS", "RUNS", "MATRICES")


@dataclass(frozen=True)
class Box:
    """A copied box of one operand: sizes, and strides and starts on both sides.

    `source` is the operand's index. After collapsing, `inner` of its dimensions move at once.
    """

    source: int
    sizes: Sequence[int]
    source_strides: Strides
    target_strides: Strides
    source_start: int = 0
    target_start: int = 0
    inner: int = ELEMENT


def choose_broadcast(node: Node, device: Device, options: KernelOptions) -> Choice:
    """Partition broadcast_to, which is elementwise work without computation."""
    (x,), y = node.operands, node.result
    sizes, walks, _ = collapse(
        y.shape, [broadcast_strides(x.shape, y.shape), contiguous_strides(y.shape)]
    )
    cut = cut_space(sizes, walks, device)
    return plain_choice(node, device, cut.label, spec=cut)


def emit_broadcast(node: Node, choice: Choice, device: Device) -> Kernel:
    """Emit broadcast_to."""
    cut = choice.spec
    assert isinstance(cut, Cut)
    (x,), y = node.operands, node.result
    body = Body({x: Access("x", x, cut.walks[0])}, (), {}, [(x, Access("y", y, cut.walks[1]))])
    parameters = (read("x", x), write("y", y))
    return pointwise_kernel(Pointwise("broadcast", parameters, body), cut, device)


def transpose_boxes(node: Node) -> list[Box]:
    """List the boxes that transpose copies."""
    (x,), y = node.operands, node.result
    own = contiguous_strides(x.shape)
    walk = tuple(own[axis] for axis in node.attrs["perm"])
    return [Box(0, y.shape, walk, contiguous_strides(y.shape))]


def reshape_boxes(node: Node) -> list[Box]:
    """List the boxes of a reshape whose result does not share its operand's memory."""
    return [Box(0, (node.result.type.size,), (1,), (1,))]


def slice_boxes(node: Node) -> list[Box]:
    """List the boxes that slice copies."""
    (x,), y = node.operands, node.result
    own = contiguous_strides(x.shape)
    start = sum(first * stride for first, stride in zip(node.attrs["start"], own, strict=True))
    walk = tuple(step * stride for step, stride in zip(node.attrs["step"], own, strict=True))
    return [Box(0, y.shape, walk, target_strides=contiguous_strides(y.shape), source_start=start)]


def reverse_boxes(node: Node) -> list[Box]:
    """List the boxes that reverse copies, walking backward along some axes."""
    x = node.operands[0]
    own, axes = contiguous_strides(x.shape), set(node.attrs["axes"])
    start = sum((x.shape[axis] - 1) * own[axis] for axis in axes)
    walk = tuple(-stride if axis in axes else stride for axis, stride in enumerate(own))
    return [Box(0, x.shape, walk, target_strides=own, source_start=start)]


def concat_boxes(node: Node) -> list[Box]:
    """List the boxes that concat copies: one per operand."""
    axis, whole = node.attrs["axis"], contiguous_strides(node.result.shape)
    boxes, at = [], 0
    for index, part in enumerate(node.operands):
        own = contiguous_strides(part.shape)
        boxes.append(
            Box(
                index,
                part.shape,
                own,
                target_strides=whole,
                source_start=0,
                target_start=at * whole[axis],
            )
        )
        at += part.shape[axis]
    return boxes


def pad_boxes(node: Node) -> list[Box]:
    """List the boxes that pad copies into its result, already filled with the padding value."""
    (x,), y = node.operands, node.result
    whole = contiguous_strides(y.shape)
    start = sum(low * stride for low, stride in zip(node.attrs["low"], whole, strict=True))
    return [
        Box(
            0,
            x.shape,
            contiguous_strides(x.shape),
            target_strides=whole,
            source_start=0,
            target_start=start,
        )
    ]


BOXES: dict[str, Callable[[Node], list[Box]]] = {
    "transpose": transpose_boxes,
    "reshape": reshape_boxes,
    "slice": slice_boxes,
    "reverse": reverse_boxes,
    "concat": concat_boxes,
    "pad": pad_boxes,
}


def choose_movement(node: Node, device: Device, options: KernelOptions) -> Choice:
    """Collapse the boxes of an op of BOXES, and find how each moves."""
    boxes = tuple(_collapsed(box, node.result) for box in BOXES[node.op](node))
    label = "+".join(dict.fromkeys(NAMES[box.inner] for box in boxes))
    return plain_choice(node, device, label, spec=boxes)


def _collapsed(box: Box, result: Value) -> Box:
    sizes, (source, target), _ = collapse(box.sizes, [box.source_strides, box.target_strides])
    if not sizes:
        sizes, source, target = [1], (1,), (1,)
    inner = ELEMENT
    if source[-1] == 1 and target[-1] == 1:
        inner = RUN
    elif result.dtype in (F32, DType.I8) and _is_matrix(sizes, source, target):
        inner = MATRIX
    return replace(
        box, sizes=tuple(sizes), source_strides=source, target_strides=target, inner=inner
    )


def _is_matrix(sizes: Sequence[int], source: Strides, target: Strides) -> bool:
    """Whether the last two dimensions are a contiguous matrix that is to be transposed."""
    return len(sizes) >= 2 and source[-2] == 1 and target[-1] == 1


def emit_movement(node: Node, choice: Choice, device: Device) -> Kernel:
    """Emit an op of BOXES; pad first fills its whole result, then waits at a barrier."""
    boxes = choice.spec
    assert isinstance(boxes, tuple)
    operands, result = node.operands, node.result
    names = ["x"] if node.op != "concat" else [f"x{index}" for index in range(len(operands))]
    parameters = [read(name, value) for name, value in zip(names, operands, strict=True)]
    lines = _fill(result, node.attrs["value"]) if node.op == "pad" else []
    block = 8 if device.cpu.vector_bytes >= 32 else 4
    for box in boxes:
        lines += _copy(box, names[box.source], c_scalar(result.dtype).ctype, block)
    shapes = ", ".join(str(list(value.shape)) for value in operands)
    return define_kernel(
        name=f"pe_{result.dtype.value}_{node.op}_{'x'.join(map(str, result.shape))}",
        isa=device.cpu.isa,
        parameters=[*parameters, write("y", result)],
        body=lines,
        prelude=f'/* {node.op} of {shapes} */\n#include "pe_transpose.h"',
    )


BROADCAST = KernelFamily(choose_broadcast, emit_broadcast)
MOVEMENT = KernelFamily(choose_movement, emit_movement)


def _fill(result: Value, number: float) -> list[str]:
    value = scalar(number) if result.dtype is F32 else str(int(number))
    return [
        f"const pe_range all = pe_split(w, {result.type.size}, 64);",
        "for (ptrdiff_t i = all.begin; i < all.end; i++) {",
        f"    y[i] = {value};",
        "}",
        "pe_barrier(w);",
    ]


def _copy(box: Box, name: str, ctype: str, block: int) -> list[str]:
    """The statements that copy one box; threads split its outermost dimensions."""
    sizes, source, target = box.sizes, box.source_strides, box.target_strides
    outer = len(sizes) - box.inner
    count = math.prod(sizes[:outer])
    if outer == 0 and box.inner == RUN:
        return _split_run(box, name, ctype)
    if outer == 0 and box.inner == MATRIX:
        return _split_matrix(box, name, ctype, block)
    at_source = " + ".join([str(box.source_start), *_offsets(sizes[:outer], source[:outer])])
    at_target = " + ".join([str(box.target_start), *_offsets(sizes[:outer], target[:outer])])
    inner = _inner(sizes[outer:], source[outer:], target[outer:], ctype=ctype, block=block)
    return [
        "{",
        f"    const pe_range share = pe_split(w, {count}, 1);",
        "    for (ptrdiff_t i = share.begin; i < share.end; i++) {",
        f"        const {ctype} *from = {name} + {at_source};",
        f"        {ctype} *to = y + {at_target};",
        f"        {inner}",
        "    }",
        "}",
    ]


def _inner(sizes: Sequence[int], source: Strides, target: Strides, ctype: str, block: int) -> str:
    if not sizes:
        return "*to = *from;"
    if len(sizes) == 1:
        return f"memcpy(to, from, {sizes[0]} * sizeof({ctype}));"
    rows, columns = sizes[1], sizes[0]
    return _transposition(
        "to", "from", (target[0], source[1], rows, columns), ctype=ctype, block=block
    )


def _transposition(to: str, at: str, sizes: tuple[int | str, ...], ctype: str, block: int) -> str:
    """Return the call that transposes a matrix: pitches of result and source, rows, columns."""
    target, source, rows, columns = sizes
    if ctype == "float":
        return f"pe_transpose({to}, {target}, {at}, {source}, {rows}, {columns}, {block});"
    return f"pe_transpose_bytes({to}, {target}, {at}, {source}, {rows}, {columns});"


def _split_matrix(box: Box, name: str, ctype: str, block: int) -> list[str]:
    """One matrix: threads split the rows of the result."""
    sizes, source, target = box.sizes, box.source_strides, box.target_strides
    to = f"y + {box.target_start} + share.begin * {target[0]}"
    at = f"{name} + {box.source_start} + share.begin"
    matrix = (target[0], source[1], sizes[1], "share.end - share.begin")
    return [
        "{",
        f"    const pe_range share = pe_split(w, {sizes[0]}, {block});",
        f"    {_transposition(to, at, matrix, ctype=ctype, block=block)}",
        "}",
    ]


def _split_run(box: Box, name: str, ctype: str) -> list[str]:
    return [
        "{",
        f"    const pe_range share = pe_split(w, {box.sizes[0]}, 64);",
        f"    memcpy(y + {box.target_start} + share.begin,",
        f"           {name} + {box.source_start} + share.begin,",
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
