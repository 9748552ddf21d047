"""Gather and scatter-add at run-time indices: embeddings, label look-ups.

    take(x, index)        `axis` of x becomes index's shape: y[a, i, j, b] = x[a, index[i, j], b]
    take_along(x, index)  index has x's rank: y[i, j] = x[index[i, j], j] for axis 0, and so on

Their gradients add dy where x was read: `take_dx` and `take_along_dx`, also known as scatter-add.
`take_add` adds it to an existing sum, such as another gradient of the same table. `take_update` is
a step of gradient descent that writes only the affected elements of x, `cache_update` gives them
new contents. No data can make a kernel access memory out of bounds: a read at an index outside the
axis is clamped, an addition there is dropped. Negative indices are not wrapped.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import F32, I32, I64, Shape, TensorType
from pockengine.compiler.ops.registry import REQUIRED, Arrays, Indices, Types, define
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]
SCALAR = TensorType(F32, ())


def _check(x: Shape, index: TensorType, axis: int) -> None:
    if index.dtype not in (I32, I64):
        raise GraphError(f"indices must be i32 or i64, not {index}")
    if not 0 <= axis < len(x):
        raise GraphError(f"axis {axis} is outside of shape {x}")


def _gathered_shape(x: Shape, index: TensorType, axis: int) -> Shape:
    _check(x, index, axis)
    return (*x[:axis], *index.shape, *x[axis + 1 :])


def _along(x: Shape, index: TensorType, axis: int) -> Shape:
    _check(x, index, axis)
    sizes = zip(x, index.shape, strict=False)
    fits = all(i == axis or size >= other for i, (size, other) in enumerate(sizes))
    if len(index.shape) != len(x) or not fits:
        raise GraphError(f"indices {index} do not fit along axis {axis} of shape {x}")
    return index.shape


def _infer_take(types: Types, attrs: Attrs) -> Types:
    x, index = types
    return (x.with_shape(_gathered_shape(x.shape, index, attrs["axis"])),)


def _infer_along(types: Types, attrs: Attrs) -> Types:
    x, index = types
    return (x.with_shape(_along(x.shape, index, attrs["axis"])),)


def _infer_take_dx(types: Types, attrs: Attrs) -> Types:
    dy, index = types
    if _gathered_shape(attrs["input_shape"], index, attrs["axis"]) != dy.shape:
        raise GraphError(f"take_dx: {dy} was not taken from {attrs['input_shape']} at {index}")
    return (dy.with_shape(attrs["input_shape"]),)


def _infer_along_dx(types: Types, attrs: Attrs) -> Types:
    dy, index = types
    if _along(attrs["input_shape"], index, attrs["axis"]) != dy.shape:
        raise GraphError(f"take_along_dx: {dy} was not taken from {attrs['input_shape']}")
    return (dy.with_shape(attrs["input_shape"]),)


def _places(index: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """Indices of every element of `take_along`, for NumPy's fancy indexing."""
    places = [np.asarray(place) for place in np.indices(index.shape)]
    places[axis] = index
    return tuple(places)


def _inside(index: np.ndarray, size: int) -> np.ndarray:
    return np.asarray(np.clip(index, 0, size - 1))


def _bounded(index: np.ndarray, size: int) -> np.ndarray:
    """Map each index outside an axis to `size`, one past the end."""
    return np.where((index >= 0) & (index < size), index, size)


def _room(shape: Shape, axis: int) -> Shape:
    """Add one element at the end of an axis, for dropped additions."""
    return (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])


def _without_room(array: np.ndarray, axis: int) -> np.ndarray:
    return array[(slice(None),) * axis + (slice(-1),)]


def _eval_take(arrays: Arrays, attrs: Attrs) -> Arrays:
    x, index = arrays
    return (np.take(x, _inside(index, x.shape[attrs["axis"]]), axis=attrs["axis"]),)


def _eval_along(arrays: Arrays, attrs: Attrs) -> Arrays:
    x, index = arrays
    axis = attrs["axis"]
    return (x[_places(_inside(index, x.shape[axis]), axis)],)


def _eval_take_dx(arrays: Arrays, attrs: Attrs) -> Arrays:
    dy, index = arrays
    axis, shape = attrs["axis"], attrs["input_shape"]
    dx = np.zeros(_room(shape, axis), np.float64)
    np.add.at(dx, (slice(None),) * axis + (_bounded(index, shape[axis]),), dy)
    return (_without_room(dx, axis).astype(dy.dtype),)


def _eval_along_dx(arrays: Arrays, attrs: Attrs) -> Arrays:
    dy, index = arrays
    axis, shape = attrs["axis"], attrs["input_shape"]
    dx = np.zeros(_room(shape, axis), np.float64)
    np.add.at(dx, _places(_bounded(index, shape[axis]), axis), dy)
    return (_without_room(dx, axis).astype(dy.dtype),)


def _infer_take_add(types: Types, attrs: Attrs) -> Types:
    x, dy, index = types
    if dy != x.with_shape(_gathered_shape(x.shape, index, attrs["axis"])):
        raise GraphError(f"take_add: {dy} was not taken from {x} at {index}")
    return (x,)


def _eval_take_add(arrays: Arrays, attrs: Attrs) -> Arrays:
    x, dy, index = arrays
    (dx,) = _eval_take_dx((dy, index), {**attrs, "input_shape": x.shape})
    return (x + dx,)


def _infer_take_update(types: Types, attrs: Attrs) -> Types:
    param, dy, index, lr = types
    if _gathered_shape(param.shape, index, attrs["axis"]) != dy.shape or lr != SCALAR:
        raise GraphError(f"take_update: {dy} was not taken from {param} at {index}, or lr is {lr}")
    return ()


def _eval_take_update(arrays: Arrays, attrs: Attrs) -> Arrays:
    param, dy, index, lr = arrays
    axis, size = attrs["axis"], param.shape[attrs["axis"]]
    updated = np.concatenate([param, np.zeros_like(param.take([0], axis=axis))], axis=axis)
    np.subtract.at(updated, (slice(None),) * axis + (_bounded(index, size),), lr * dy)
    return (np.ascontiguousarray(_without_room(updated, axis)),)


def _infer_cache_update(types: Types, attrs: Attrs) -> Types:
    state, value, index = types
    if value != state.with_shape(_gathered_shape(state.shape, index, attrs["axis"])):
        raise GraphError(f"cache_update: {value} does not fit into {state} at {index}")
    return ()


def _eval_cache_update(arrays: Arrays, attrs: Attrs) -> Arrays:
    state, value, index = arrays
    axis, size = attrs["axis"], state.shape[attrs["axis"]]
    room = np.concatenate([state, np.zeros_like(state.take([0], axis=axis))], axis=axis)
    room[(slice(None),) * axis + (_bounded(index, size),)] = value
    return (np.ascontiguousarray(_without_room(room, axis)),)


def _take_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Add dy to the slices of x that were read."""
    x, index = node.operands
    return g.take_dx(dy, index, axis=node.attrs["axis"], input_shape=x.shape)


def _along_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Add dy to the elements of x that were read."""
    x, index = node.operands
    return g.take_along_dx(dy, index, axis=node.attrs["axis"], input_shape=x.shape)


def _take_again(g: "Builder", node: Node, dy: Value) -> Value:
    """x = scatter-add of y at index  =>  dy = dx taken at index, zero where y was dropped."""
    index, axis = node.operands[-1], node.attrs["axis"]
    behind = (1,) * (len(dy.shape) - axis - 1)
    shape = (*index.shape, *behind)
    return _unless_dropped(g, g.take(dy, index, axis=axis), index, size=dy.shape[axis], shape=shape)


def _along_again(g: "Builder", node: Node, dy: Value) -> Value:
    """x = scatter-add of y along index  =>  dy = dx taken along index, zero where y was dropped."""
    index, axis = node.operands[1], node.attrs["axis"]
    taken = g.take_along(dy, index, axis=axis)
    return _unless_dropped(g, taken, index, size=dy.shape[axis], shape=index.shape)


def _unless_dropped(g: "Builder", taken: Value, index: Value, size: int, shape: Shape) -> Value:
    """Zero where the index, in `shape`, is out of range; constant in-range indices cost nothing."""
    known = g.graph.constants.get(index)
    if known is not None and known.size and known.min() >= 0 and known.max() < size:
        return taken
    low = g.ge(index, g.scalar(0, index.dtype))
    inside = g.logical_and(low, g.lt(index, g.scalar(size, index.dtype)))
    return g.where(g.reshape(inside, shape=shape), taken, g.scalar(0.0, taken.dtype))


def _places_to_read(node: Node) -> int:
    return int(node.operands[0].shape[node.attrs["axis"]])


def _sum_before(g: "Builder", node: Node, dy: Value) -> Value:
    """y = x + ...  =>  dx = dy."""
    return dy


def _places_to_add(node: Node) -> int:
    return int(node.attrs["input_shape"][node.attrs["axis"]])


define(
    "take",
    "x index",
    stored=True,
    attrs={"axis": REQUIRED},
    infer=_infer_take,
    eval=_eval_take,
    vjp={"x": _take_dx},
    linear=(0,),
    shifts=(0,),
    indices=Indices(1, _places_to_read),
)
define(
    "take_along",
    "x index",
    stored=True,
    attrs={"axis": REQUIRED},
    infer=_infer_along,
    eval=_eval_along,
    vjp={"x": _along_dx},
    linear=(0,),
    shifts=(0,),
    indices=Indices(1, _places_to_read),
)
define(
    "take_dx",
    "dy index",
    attrs={"axis": REQUIRED, "input_shape": REQUIRED},
    infer=_infer_take_dx,
    eval=_eval_take_dx,
    vjp={"dy": _take_again},
    linear=(0,),
    indices=Indices(1, _places_to_add),
)
define(
    "take_along_dx",
    "dy index",
    attrs={"axis": REQUIRED, "input_shape": REQUIRED},
    infer=_infer_along_dx,
    eval=_eval_along_dx,
    vjp={"dy": _along_again},
    linear=(0,),
    indices=Indices(1, _places_to_add),
)
define(
    "take_add",
    "x dy index",
    attrs={"axis": REQUIRED},
    infer=_infer_take_add,
    eval=_eval_take_add,
    vjp={"x": _sum_before, "dy": _take_again},
    linear=(0, 1),
    shifts=(0,),
    indices=Indices(2, _places_to_read),
)
define(
    "take_update",
    "param dy index lr",
    attrs={"axis": REQUIRED},
    infer=_infer_take_update,
    eval=_eval_take_update,
    indices=Indices(2, _places_to_read),
    writes=(0,),
)
define(  # the slices of state at distinct indices become those of value
    "cache_update",
    "state value index",
    attrs={"axis": REQUIRED},
    infer=_infer_cache_update,
    eval=_eval_cache_update,
    indices=Indices(2, _places_to_read),
    writes=(0,),
)
