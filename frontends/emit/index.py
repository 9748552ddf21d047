"""Writing at indices that may repeat: which write is the last one at its place."""

import numpy as np

from pockengine.compiler.ir import F32, Builder, Value
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, plain, reshape

MOST_COMPARED = 4096
"""Each index is compared with each: so many of them at most."""


def last_writers(g: Builder, index: Tensor, *, known_only: bool = False) -> Tensor | None:
    """Say which indices along the last dimension no later one equals; None for all of them.

    With `known_only` the index itself stands for an answer that depends on data.
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
    return emit.arithmetic(g, "eq", emit.reduce(g, "reduce_max", beaten, [-1], False), 0.0)


def _distinct(g: Builder, index: Value) -> bool:
    """Return whether each line is known, and has no index twice."""
    value, count = index, index.shape[-1]
    while value.node is not None and value.node.op == "reshape":
        value = value.node.operands[0]
    data = g.graph.constants.get(value)
    if data is None:
        return False
    lines = np.sort(data.reshape(-1, count), axis=1)
    return not np.any(lines[:, 1:] == lines[:, :-1])
