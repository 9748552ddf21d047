"""Lists of tensors, whose lengths are fixed at compile time, also where a loop appends to them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from pockengine.compiler.ir import Builder
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor
from pockengine.frontends.onnx.control import Known, emit_tensor, stacked

Item = Known | list[Known]


def _construct(g: Builder, values: Sequence[Any], **_: int) -> Item:
    return list(values)


def _empty(g: Builder, values: Sequence[Any], **_: int) -> Item:
    return []


def _at(g: Builder, values: Sequence[Any], **_: int) -> Item:
    parts, place = values
    item: Known = parts[_place(place, len(parts))]
    return item


def _insert(g: Builder, values: Sequence[Any], **_: int) -> Item:
    parts, item, *place = values
    at = _place(place[0], len(parts) + 1) if place and place[0] is not None else len(parts)
    return [*parts[:at], item, *parts[at:]]


def _erase(g: Builder, values: Sequence[Any], **_: int) -> Item:
    parts, *place = values
    at = _place(place[0], len(parts)) if place and place[0] is not None else len(parts) - 1
    return [*parts[:at], *parts[at + 1 :]]


def _length(g: Builder, values: Sequence[Any], **_: int) -> Item:
    return np.asarray(len(values[0]), np.int64)


def _joined(g: Builder, values: Sequence[Any], *, axis: int, new_axis: int = 0) -> Item:
    """Concatenate along a dimension, or a new one."""
    (parts,) = values
    if new_axis:
        return stacked(g, parts, axis)
    if not parts:
        raise Unsupported("a sequence of no tensors")
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts, axis)
    return emit.concat(g, [emit_tensor(g, part) for part in parts], axis)


def _split(g: Builder, values: Sequence[Any], *, axis: int = 0, keepdims: int = 1) -> Item:
    """Cut along a dimension: into rows, parts of one size (the last may be smaller), or of many."""
    x = emit_tensor(g, values[0])
    length, sizes = x.shape[axis], values[1] if len(values) > 1 else None
    if isinstance(sizes, Tensor):
        raise Unsupported("sizes that data decide; make them constants of the model")
    step = 1 if sizes is None else int(sizes.flat[0])
    if sizes is not None and sizes.ndim:
        stops = np.cumsum(sizes).tolist()
    else:
        stops = [*range(step, length, step), length]
    if stops[-1] != length or min(np.diff([0, *stops])) < 1:
        raise Unsupported(f"dimension {axis} of {list(x.shape)} cannot be split into {sizes}")
    pieces = zip([0, *stops], stops, strict=False)
    parts = [emit.slice_dim(g, x, axis, start=start, stop=stop) for start, stop in pieces]
    whole = sizes is not None or keepdims
    return [part if whole else emit.squeeze(g, part, [axis]) for part in parts]


def _same(g: Builder, values: Sequence[Any], **_: int) -> Item:
    if not values:
        raise Unsupported("an optional value that is missing")
    item: Item = values[0]
    return item


def _has(g: Builder, values: Sequence[Any], **_: int) -> Item:
    return np.asarray(bool(values) and values[0] is not None)


SEQUENCES: Mapping[str, Callable[..., Item]] = {
    "ConcatFromSequence": _joined,
    "Optional": _same,
    "OptionalGetElement": _same,
    "OptionalHasElement": _has,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _split,
}


def is_sequence(node: NodeProto) -> bool:
    """Return whether this is an operator on lists of tensors."""
    return node.domain in ("", "ai.onnx") and node.op_type in SEQUENCES


def build_sequence(g: Builder, node: NodeProto, values: Sequence[Item | None]) -> list[Item]:
    """Build an operator on lists of tensors."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute if a.name != "type"}
    attributes.pop("dtype", None)
    return [SEQUENCES[node.op_type](g, values, **attributes)]


def _place(at: Any, length: int) -> int:
    """Return a place in a list; negative ones count from its end."""
    if isinstance(at, Tensor):
        raise Unsupported("a place in a sequence that data decide; make it a constant")
    place = int(at.item())
    if not -length <= place < length:
        raise Unsupported(f"place {place} of a sequence of {length} tensors")
    return place % length
