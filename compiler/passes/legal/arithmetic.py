"""Rules of `legalize` for elementwise ops, reductions and copies."""

import math
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.rewrite import Rule
from pockengine.compiler.ops.random import scale_up
from pockengine.compiler.ops.shape import slice_axis

Results = tuple[Value, ...]


def _unary(build: Callable[[Builder, Value], Value]) -> Rule:
    return lambda g, node: (build(g, node.operands[0]),)


def _bounded(g: Builder, node: Node) -> Results:
    """min(max(x, low), high)."""
    low, high = node.attrs["min"], node.attrs["max"]
    return (_between(g, node.operands[0], low, high),)


def _between(g: Builder, x: Value, low: float, high: float) -> Value:
    x = x if low == -math.inf else g.maximum(x, g.scalar(low))
    return x if high == math.inf else g.minimum(x, g.scalar(high))


def _hard_sigmoid(g: Builder, x: Value) -> Value:
    """x / 6 + 1 / 2, from 0 to 1."""
    return _between(g, g.add(g.mul(x, g.scalar(1 / 6)), g.scalar(0.5)), 0.0, 1.0)


def _sigmoid(g: Builder, x: Value) -> Value:
    """1 / (1 + exp(-x)): 0 where the exponential overflows."""
    return g.div(g.scalar(1.0), g.add(g.scalar(1.0), g.exp(g.mul(x, g.scalar(-1.0)))))


def _mean(g: Builder, node: Node) -> Results:
    (x,), axes = node.operands, node.attrs["axes"]
    share = g.scalar(1 / math.prod(x.shape[axis] for axis in axes))
    return (g.mul(g.reduce_sum(x, **node.attrs), share),)


def _min(g: Builder, node: Node) -> Results:
    """-max(-x)."""
    return (g.neg(g.reduce_max(g.neg(node.operands[0]), **node.attrs)),)


def _reverse(g: Builder, node: Node) -> Results:
    (x,) = node.operands
    for axis in node.attrs["axes"]:
        x = g.pick(x, axis=axis, index=tuple(reversed(range(x.shape[axis]))))
    return (x,)


def _pick(g: Builder, node: Node) -> Results:
    """A concat of one slice per run of consecutive indices."""
    (x,), axis, index = node.operands, node.attrs["axis"], node.attrs["index"]
    ends = [i + 1 for i, (a, b) in enumerate(pairwise(index)) if b != a + 1]
    spans = pairwise([0, *ends, len(index)])
    runs = [range(index[first], index[last - 1] + 1) for first, last in spans]
    parts = [slice_axis(g, x, axis, run) for run in runs]
    return (g.emit("concat", *parts, axis=axis).result if len(parts) > 1 else parts[0],)


def _dropout(g: Builder, node: Node) -> Results:
    """x scaled up where a random number is at least p, else 0."""
    (x, seed), p = node.operands, node.attrs["p"]
    drawn = g.random_uniform(seed, shape=x.shape, stream=node.attrs["stream"])
    scaled = g.mul(x, g.scalar(float(np.float32(scale_up(p)))))
    return (g.where(g.ge(drawn, g.scalar(p)), scaled, g.scalar(0.0)),)


RULES: Mapping[str, Rule] = {
    "square": _unary(lambda g, x: g.mul(x, x)),
    "reciprocal": _unary(lambda g, x: g.div(g.scalar(1.0), x)),
    "rsqrt": _unary(lambda g, x: g.div(g.scalar(1.0), g.sqrt(x))),
    "relu": _unary(lambda g, x: g.maximum(x, g.scalar(0, x.dtype))),
    "neg": _unary(lambda g, x: g.mul(x, g.scalar(-1, x.dtype))),
    "sigmoid": _unary(_sigmoid),
    "hard_sigmoid": _unary(_hard_sigmoid),
    "hard_swish": _unary(lambda g, x: g.mul(x, _hard_sigmoid(g, x))),
    "clamp": _bounded,
    "hardtanh": _bounded,
    "reduce_mean": _mean,
    "reduce_min": _min,
    "reverse": _reverse,
    "pick": _pick,
    "dropout": _dropout,
}
