"""Reading and writing at indices that may be negative, or repeat: the last write wins."""

import numpy as np

from pockengine.compiler.ir import F32, I64, Builder, Value
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape

MOST_COMPARED = 4096
"""Maximum number of indices: each is compared with each."""


def wrapped(g: Builder, index: Tensor, size: int) -> Tensor:
    """Convert negative indices, which count from the end."""
    data = g.graph.constants.get(index.value)
    if data is not None:
        whole = np.where(data < 0, data + size, data)
        return Tensor(g.constant(whole.astype(data.dtype)), index.layout)
    from_end = emit.arithmetic(g, "add", index, size)
    negative = emit.arithmetic(g, "lt", index, 0)
    return emit.elementwise(g, "where", negative, from_end, index)


def last_writers(g: Builder, index: Tensor, *, known_only: bool = False) -> Tensor | None:
    """Return whether each index along the last dimension is the last of its value; None for all.

    With `known_only` a result that depends on data is replaced by the index itself.
    """
    count = index.shape[-1]
    if count == 1 or _distinct(g, index.value):
        return None
    if known_only:
        return index
    if count > MOST_COMPARED:
        raise Unsupported(
            f"writing at {count} indices that may coincide; {MOST_COMPARED} are the most, unless "
            "values are added up"
        )
    equal = emit.arithmetic(
        g,
        "eq",
        reshape(g, index, (*index.shape, 1)),
        reshape(g, index, (*index.shape[:-1], 1, count)),
    )
    later = plain(g.constant(np.triu(np.ones((count, count), np.bool_), 1)))
    beaten = emit.cast(g, emit.arithmetic(g, "logical_and", equal, later), F32)
    return emit.arithmetic(
        g, "eq", emit.reduce(g, "reduce_max", beaten, dims=[-1], keepdims=False), 0.0
    )


def _distinct(g: Builder, index: Value) -> bool:
    """Return whether each line is constant, without repeated indices."""
    value, count = index, index.shape[-1]
    while value.node is not None and value.node.op == "reshape":
        value = value.node.operands[0]
    data = g.graph.constants.get(value)
    if data is None:
        return False
    lines = np.sort(data.reshape(-1, count), axis=1)
    return not np.any(lines[:, 1:] == lines[:, :-1])


def write_lines(
    g: Builder, x: Tensor, dim: int, index: Tensor, lines: Tensor, *, accumulate: bool
) -> Tensor:
    """Write or add slices at these places of a dimension; `index` is (n,), counted from 0."""
    if x.dtype is not F32:
        if accumulate:
            raise Unsupported(f"adding at indices of {x.dtype.value}; convert to float32 first")
        return _picked_lines(g, x, dim, index=index, lines=lines)
    size = x.shape[dim]
    places = framework_order(g, index)

    def added(values: Tensor) -> Tensor:
        shape = (*values.shape[:dim], size, *values.shape[dim + 1 :])
        source = framework_order(g, values)
        return plain(g.take_dx(source, places, axis=dim, input_shape=shape))

    if accumulate:
        return emit.arithmetic(g, "add", x, added(lines))
    lines = _where_last(g, index, lines, dim)
    ones = np.ones([index.size if axis == dim else 1 for axis in range(x.rank)], np.float32)
    hit = emit.arithmetic(g, "gt", added(plain(g.constant(ones))), 0.0)
    return emit.elementwise(g, "where", hit, added(lines), x)


def _picked_lines(g: Builder, x: Tensor, dim: int, index: Tensor, lines: Tensor) -> Tensor:
    """Scatter slices of integers or bools: each position gets the last slice written to it."""
    numbers = plain(g.constant(np.arange(1, index.size + 1, dtype=np.float32)))
    last = framework_order(g, _where_last(g, index, numbers, 0))
    places, shape = framework_order(g, index), (x.shape[dim],)
    writer = plain(g.take_dx(last, places, axis=0, input_shape=shape))
    hit = emit.arithmetic(g, "gt", writer, 0.0)
    place = emit.arithmetic(g, "maximum", emit.arithmetic(g, "sub", writer, 1.0), 0.0)
    row = framework_order(g, emit.cast(g, place, I64))
    picked = plain(g.take(framework_order(g, lines), row, axis=dim))
    wide = reshape(g, hit, tuple(shape[0] if d == dim else 1 for d in range(x.rank)))
    return emit.elementwise(g, "where", wide, picked, x)


def _where_last(g: Builder, index: Tensor, lines: Tensor, dim: int) -> Tensor:
    """Zero the slices whose place a later slice overwrites."""
    last = last_writers(g, index)
    if last is None:
        return lines
    shape = [index.size if axis == dim else 1 for axis in range(lines.rank)]
    return only_last(g, reshape(g, last, tuple(shape)), lines)


def only_last(g: Builder, last: Tensor, values: Tensor) -> Tensor:
    """Write zero where `last` is false; a gradient still flows there, as in PyTorch."""
    nothing = emit.arithmetic(g, "sub", values, emit.unary("stop_gradient")(g, values))
    return emit.elementwise(g, "where", last, values, nothing)
