"""Recover queries, keys and values in the layout of layers, (batch, rows, heads, size).

Frontends permute heads outwards, and repeat keys and values for the heads that share them, with
`broadcast_to`, `reshape` and `transpose`. These moves are traced here on index arrays, so any
spelling is recognized and none of the moves is computed.
"""

from functools import lru_cache
from itertools import permutations
from math import prod
from typing import Any

import numpy as np

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ops.registry import lookup

SWAPPED = (0, 2, 1, 3)
"""Permutation (batch, heads, rows, size) <-> (batch, rows, heads, size)."""

Shape = tuple[int, ...]
Steps = tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]


def by_rows(g: Builder, x: Value, *, shared: bool) -> Value:
    """Return x, (batch, heads, rows, size), as (batch, rows, heads, size).

    With `shared`, heads that are repeats of one head are returned once.
    """
    root, steps = x, list[Node]()
    while root.node is not None and lookup(root.node.op).rearranges:
        steps.insert(0, root.node)
        root = root.node.operands[0]
    found = _arrangement(root.shape, tuple(map(_step, steps)), x.shape, shared)
    if found is None:
        return g.transpose(x, perm=SWAPPED)
    perm, groups = found
    line = g.reshape(root, shape=_sizes(root.shape))
    batch, _, rows, size = x.shape
    return g.reshape(g.transpose(line, perm=perm), shape=(batch, rows, groups, size))


def _step(node: Node) -> tuple[str, tuple[tuple[str, Any], ...]]:
    return node.op, tuple(node.attrs.items())


def _sizes(shape: Shape) -> Shape:
    """Return the sizes above 1, which a transpose can distinguish."""
    return tuple(size for size in shape if size > 1)


@lru_cache
def _arrangement(root: Shape, steps: Steps, shape: Shape, shared: bool) -> tuple[Shape, int] | None:
    """Return the transpose from a root to (batch, rows, groups, size), and the number of groups.

    None if a transpose is not enough. Cached, as all layers of a net have the same moves.
    """
    places = np.arange(prod(root)).reshape(root)
    for op, attrs in steps:
        (places,) = lookup(op).eval((places,), dict(attrs))
    batch, heads, rows, size = shape
    places = places.reshape(shape)
    groups = prod(root) // (batch * rows * size) or heads
    if shared and groups < heads and heads % groups == 0:
        grouped = places.reshape(batch, groups, heads // groups, rows, size)
        if np.array_equal(grouped, np.broadcast_to(grouped[:, :, :1], grouped.shape)):
            places = grouped[:, :, 0]
    target = places.swapaxes(1, 2).ravel()
    numbers = np.arange(prod(root)).reshape(_sizes(root))
    for perm in permutations(range(numbers.ndim)):
        if np.array_equal(numbers.transpose(perm).ravel(), target):
            return perm, places.shape[1]
    return None
