"""TensorLists, which loops read and write step by step; unrolling the loops removes them."""

from dataclasses import replace

import numpy as np

from pockengine.compiler.ir import Shape
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, reshape
from pockengine.frontends.tensorflow.ops.registry import TensorList, TfContext, integers, tf_op


def _shape(array: np.ndarray) -> Shape | None:
    """Return the items' shape; None when it is open."""
    sizes = integers(array)
    return None if np.ndim(array) == 0 or -1 in sizes else tuple(sizes)


@tf_op("TensorListReserve", static=(0, 1))
def reserve(
    ctx: TfContext, shape: np.ndarray, count: np.ndarray, *, element_dtype: np.dtype
) -> TensorList:
    """Create a list of unwritten items."""
    return TensorList((None,) * integers(count)[0], _shape(shape))


@tf_op("EmptyTensorList", static=(0, 1))
def empty(
    ctx: TfContext, shape: np.ndarray, most: np.ndarray, *, element_dtype: np.dtype
) -> TensorList:
    """Create a list without items."""
    return TensorList((), _shape(shape))


@tf_op("TensorListFromTensor", static=(1,))
def from_tensor(ctx: TfContext, x: Tensor, shape: np.ndarray) -> TensorList:
    """Split a tensor into the slices of its first dimension."""
    parts = [emit.slice_dim(ctx.g, x, 0, start=i, stop=i + 1) for i in range(x.shape[0])]
    return TensorList(tuple(emit.squeeze(ctx.g, part, [0]) for part in parts), x.shape[1:])


@tf_op("TensorListGetItem", static=(1, 2))
def get_item(ctx: TfContext, list_: TensorList, index: np.ndarray, shape: np.ndarray) -> Tensor:
    """Return one item."""
    item = list_.items[_place(list_, index)]
    if item is None:
        raise Unsupported("an item of a list that is read before it is written")
    return item


@tf_op("TensorListSetItem", static=(1,))
def set_item(
    ctx: TfContext, list_: TensorList, index: np.ndarray, item: Tensor, *, resize: bool = False
) -> TensorList:
    """Replace one item."""
    items = list(list_.items)
    items[_place(list_, index)] = item
    return replace(list_, items=tuple(items))


@tf_op("TensorListPushBack")
def push_back(ctx: TfContext, list_: TensorList, item: Tensor) -> TensorList:
    """Append an item."""
    return replace(list_, items=(*list_.items, item))


@tf_op("TensorListLength")
def length(ctx: TfContext, list_: TensorList) -> np.ndarray:
    """Return the number of items."""
    return np.array(len(list_.items), np.int32)


@tf_op("TensorListStack", static=(1,))
def stack(
    ctx: TfContext, list_: TensorList, shape: np.ndarray, *, num_elements: int = -1
) -> Tensor:
    """Join the items along a new first dimension."""
    parts = [_wide(ctx, item) for item in list_.items]
    if not parts:
        raise Unsupported("a list without items")
    return emit.concat(ctx.g, parts, 0)


def _wide(ctx: TfContext, item: Tensor | None) -> Tensor:
    if item is None:
        raise Unsupported("an item of a list that is read before it is written")
    return reshape(ctx.g, item, (1, *item.shape))


def _place(list_: TensorList, index: np.ndarray) -> int:
    place = integers(index)[0]
    if not 0 <= place < len(list_.items):
        raise Unsupported(f"item {place} of a list of {len(list_.items)}")
    return place
