"""Matrix multiplication of the last two dimensions, with either operand transposed in place.

Leading dimensions are batches and broadcast as in NumPy. Operands are f32 or i8; `zeros` are
subtracted first. With two i8 operands the result is the i32 sum.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import TensorType
from pockengine.compiler.ops.elementwise import broadcast_shape, reduce_to, scaled
from pockengine.compiler.ops.product import PRODUCT, STORAGE, product_dtype, summed, without_zeros
from pockengine.compiler.ops.registry import Arrays, ChannelSet, Layer, Types, define
from pockengine.compiler.ops.shape import part_of_axis
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]


def _matrix(type_: TensorType, transposed: bool) -> tuple[int, int]:
    rows, columns = type_.shape[-2:]
    return (columns, rows) if transposed else (rows, columns)


def _infer(types: Types, attrs: Attrs) -> Types:
    a, b = types
    if min(a.rank, b.rank) < 2:
        raise GraphError(f"matmul needs matrices, not {a} and {b}")
    dtype = product_dtype("matmul", types, attrs)
    m, k = _matrix(a, attrs["transpose_a"])
    k_b, n = _matrix(b, attrs["transpose_b"])
    if k != k_b:
        raise GraphError(f"matmul of {a} and {b} ({dict(attrs)}): inner sizes {k} and {k_b} differ")
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2])
    return (TensorType(dtype, (*batch, m, n)),)


def _eval(arrays: Arrays, attrs: Attrs) -> Arrays:
    a, b = (array.astype(np.float64) for array in without_zeros(arrays, attrs))
    a = np.swapaxes(a, -1, -2) if attrs["transpose_a"] else a
    b = np.swapaxes(b, -1, -2) if attrs["transpose_b"] else b
    return (summed(np.matmul(a, b), arrays),)


def _da(g: "Builder", node: Node, dy: Value) -> Value:
    """y = a b  =>  da = dy bᵀ (and its transpose when a is read transposed)."""
    a, b = node.operands
    tb = node.attrs["transpose_b"]
    if node.attrs["transpose_a"]:
        da = g.matmul(b, dy, transpose_a=tb, transpose_b=True)
    else:
        da = g.matmul(dy, b, transpose_a=False, transpose_b=not tb)
    return reduce_to(g, da, a.shape)


def _db(g: "Builder", node: Node, dy: Value) -> Value:
    """y = a b  =>  db = aᵀ dy (and its transpose when b is read transposed)."""
    a, b = node.operands
    ta = node.attrs["transpose_a"]
    if node.attrs["transpose_b"]:
        db = g.matmul(dy, a, transpose_a=True, transpose_b=ta)
    else:
        db = g.matmul(a, dy, transpose_a=not ta, transpose_b=False)
    return reduce_to(g, db, b.shape)


def _channel_axis(node: Node) -> int | None:
    """Input features: the rows of a 2-D weight that is read untransposed."""
    _, b = node.operands
    return 0 if len(b.shape) == 2 and not node.attrs["transpose_b"] else None


def _db_channels(g: "Builder", node: Node, dy: Value, channels: ChannelSet) -> Value:
    """Gradient of selected rows of b only: needs, and so saves, only those columns of a."""
    a, b = node.operands
    ta = node.attrs["transpose_a"]
    part = part_of_axis(g, a, len(a.shape) - (2 if ta else 1), channels)
    db = g.matmul(part, dy, transpose_a=not ta, transpose_b=False)
    return reduce_to(g, db, (len(channels), b.shape[1]))


def _low_rank(
    g: "Builder", node: Node, factors: tuple[Value, Value], transposed: bool, scale: float
) -> Value:
    """Read the factors in the orientation of the node's weight; a tied layer may transpose it."""
    flipped = node.attrs["transpose_b"] != transposed
    first, second = reversed(factors) if flipped else factors
    hidden = g.matmul(
        node.operands[0], first, transpose_a=node.attrs["transpose_a"], transpose_b=flipped
    )
    return g.matmul(scaled(g, hidden, scale), second, transpose_b=flipped)


def _is_transposed(node: Node) -> bool:
    return bool(node.attrs["transpose_b"])


def _cost(node: Node) -> int:
    _, k = _matrix(node.operands[0].type, node.attrs["transpose_a"])
    return node.result.type.size * k


define(
    "matmul",
    "a b",
    attrs={"transpose_a": False, "transpose_b": False, **PRODUCT},
    storage=STORAGE,
    product=True,
    infer=_infer,
    eval=_eval,
    vjp={"a": _da, "b": _db},
    channel_axis={"b": _channel_axis},
    channel_vjp={"b": _db_channels},
    linear=(0, 1),
    layer=Layer(weight=1, rank=2, low_rank=_low_rank, transposed=_is_transposed),
    cost=_cost,
)
