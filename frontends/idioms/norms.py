"""Recognize norms: of the batch, of rows, by the root of the mean square, and frozen ones.

    (x - mean) / sqrt(var + eps)        as JAX and Flax, and exporters to ONNX, spell them
    x s + (beta - mean s)               with s = gamma / sqrt(var + eps), as Keras does

Statistics over all dimensions but the last are a batch norm's, those over trailing dimensions a
layer norm's. A statistic that a running average reads becomes the op's own.
"""

from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir import Value
from pockengine.compiler.ir.graph import Node
from pockengine.frontends.idioms.finder import (
    STOPPING,
    Finder,
    core,
    factors,
    made_by,
    reduced_last,
    squared,
    terms,
    unbroadcast,
)


@dataclass(frozen=True)
class _Moments:
    """Mean and biased variance of x over some axes."""

    x: Value
    mean: Value
    var: Value
    axes: tuple[int, ...]

    def fits(self, statistic: Value) -> bool:
        """Whether broadcasting aligns a statistic with the places of x from which it was
        computed."""
        shape = unbroadcast(statistic).shape
        expected = [1 if axis in self.axes else size for axis, size in enumerate(self.x.shape)]
        return [1] * (len(expected) - len(shape)) + [*shape] == expected or shape == self.x.shape


def _moments(finder: Finder, var: Value) -> _Moments | None:
    """Match a variance about the mean: E(x - mean)^2, or E x^2 - mean^2."""
    node = core(var).node
    if node is not None and node.op == "maximum":  # with 0: rounding may make it negative
        inner = finder.split(node)
        node = core(inner[0]).node if inner and inner[1] == 0 else None
    if node is None or node.op not in ("reduce_mean", "sub"):
        return None
    if node.op == "sub":
        squares, root = made_by(node.operands[0], "reduce_mean"), squared(core(node.operands[1]))
        x = squared(squares.operands[0]) if squares else None
    else:
        squares, centered = node, _difference(squared(node.operands[0]))
        x, root = centered.operands if centered else (None, None)
    mean = core(root, STOPPING).node if root is not None else None
    if squares is None or x is None or mean is None or mean.op != "reduce_mean":
        return None
    axes: tuple[int, ...] = mean.attrs["axes"]
    if mean.operands[0] is not x or squares.attrs["axes"] != axes:
        return None
    return _Moments(x, mean.result, core(var), axes)


def _difference(value: Value | None) -> Node | None:
    node = None if value is None else value.node
    return node if node is not None and node.op == "sub" else None


def _inverse_root(finder: Finder, value: Value) -> tuple[Value, float] | None:
    """Return var and eps for 1 / sqrt(var + eps)."""
    root = made_by(value, "rsqrt")
    total = core(root.operands[0]).node if root else None
    return finder.split(total) if total is not None and total.op == "add" else None


def multiplied_norm(finder: Finder, node: Node) -> Value | None:
    """(x - mean) rsqrt(var + eps), or x rsqrt(E x^2 + eps), perhaps times a scale."""
    for centered, other in (node.operands, node.operands[::-1]):
        sign, parts = factors(other)
        roots = [(f, inside) for f in parts if (inside := _inverse_root(finder, f)) is not None]
        if sign < 0 or len(roots) != 1 or centered.shape != node.result.shape:
            continue
        ((root, (var, eps)),) = roots
        others = [part for part in parts if part is not root]
        norm = _centered_norm(finder, (centered, root), var, eps=eps, scales=others)
        mean = made_by(var, "reduce_mean")
        if norm is None and mean and squared(mean.operands[0]) is centered and reduced_last(mean):
            norm = _times(finder, finder.g.emit("rms_norm", centered, eps=eps).results[0], others)
        if norm is not None:
            return norm
    return None


def divided_norm(finder: Finder, node: Node) -> Value | None:
    """(x - mean) / sqrt(var + eps)."""
    centered, deviation = node.operands
    root = made_by(deviation, "sqrt")
    total = core(root.operands[0]).node if root else None
    parts = finder.split(total) if total is not None and total.op == "add" else None
    if parts is None or centered.shape != node.result.shape:
        return None
    return _centered_norm(finder, (centered, deviation), *parts, [])


def _centered_norm(
    finder: Finder, halves: tuple[Value, Value], var: Value, eps: float, scales: list[Value]
) -> Value | None:
    """Match x - mean and its scale, if the variance is of the same x."""
    centered, root = halves
    difference, moments = _difference(centered), _moments(finder, var)
    if difference is None or moments is None or moments.x.shape != centered.shape:
        return None
    x, mean = difference.operands
    if x is not moments.x or core(mean) is not moments.mean:
        return None
    if not (moments.fits(mean) and moments.fits(root)):
        return None
    return _normalized(finder, moments, eps, scales=scales, shift=None)


def expanded_norm(finder: Finder, node: Node) -> Value | None:
    """x s + (beta - mean s) with s = rsqrt(var + eps), perhaps times gamma."""
    products = [(sign, term, *factors(term)) for sign, term in terms(node.result)]
    for _, _, inner, parts in products:
        for part in parts if inner == 1 else ():
            root = _inverse_root(finder, part)
            moments = _moments(finder, root[0]) if root else None
            if root is not None and moments is not None and moments.fits(part):
                return _collected_norm(finder, moments, root[1], products)
    return None


def _collected_norm(
    finder: Finder,
    moments: _Moments,
    eps: float,
    products: list[tuple[int, Value, int, list[Value]]],
) -> Value | None:
    """Sort the terms into x s, -mean s and the rest, and build the norm."""
    x = unbroadcast(moments.x)
    scales: dict[str, list[Value]] = {}
    others = []
    for sign, term, inner, parts in products:
        name, value = ("x", x) if sign * inner == 1 else ("mean", moments.mean)
        if value in parts:
            parts.remove(value)
            scales[name] = parts
        else:
            others.append((sign, term))
    same = "x" in scales and "mean" in scales and set(scales["x"]) == set(scales["mean"])
    if not same or len(others) > 1 or any(sign != 1 for sign, _ in others):
        return None
    gammas = [part for part in scales["x"] if _inverse_root(finder, part) is None]
    if len(gammas) != len(scales["x"]) - 1 or len(gammas) > 1:
        return None
    return _normalized(finder, moments, eps, scales=gammas, shift=others[0][1] if others else None)


def _normalized(
    finder: Finder, moments: _Moments, eps: float, scales: list[Value], shift: Value | None
) -> Value | None:
    """Build the norm whose statistics are over these axes, if there is one."""
    rank = len(moments.x.shape)
    if moments.axes == tuple(range(rank - len(moments.axes), rank)) and len(moments.axes) < rank:
        y = _times(finder, _normalized_rows(finder, moments, eps), scales)
        return y if shift is None else finder.g.add(y, shift)
    if moments.axes == tuple(range(rank - 1)):
        return _batch_norm(finder, moments, eps, scales=scales, shift=shift)
    return None


def _normalized_rows(finder: Finder, moments: _Moments, eps: float) -> Value:
    """Normalize the trailing dimensions, as one if there are several."""
    g, x = finder.g, moments.x
    if len(moments.axes) == 1:
        return g.emit("layer_norm", x, eps=eps).results[0]
    row = int(np.prod(x.shape[moments.axes[0] :]))
    rows = g.reshape(x, shape=(x.type.size // row, row))
    return g.reshape(g.emit("layer_norm", rows, eps=eps).results[0], shape=x.shape)


def _times(finder: Finder, y: Value, parts: list[Value]) -> Value:
    for part in parts:
        y = finder.g.mul(y, part)
    return y


def _batch_norm(
    finder: Finder, moments: _Moments, eps: float, scales: list[Value], shift: Value | None
) -> Value | None:
    """Use the op, with its scale if there is one; a later shift is taken in by `shifted_norm`."""
    g, channels = finder.g, moments.x.shape[-1:]
    gamma = g.constant(np.ones(channels, np.float32))
    if len(scales) == 1 and (per_channel := _vector(finder, scales[0], channels)) is not None:
        gamma, scales = per_channel, []
    beta = g.constant(np.zeros(channels, np.float32))
    if shift is not None:
        per_channel = _vector(finder, shift, channels)
        if per_channel is None or scales:
            return None
        beta = per_channel
    y, mean, var = g.emit("batch_norm", moments.x, gamma, beta, eps=eps).results
    finder.statistics.update({moments.mean: mean, moments.var: var})
    return _times(finder, y, scales)


def _vector(finder: Finder, value: Value, shape: tuple[int, ...]) -> Value | None:
    """Return the vector over the channels that a value repeats."""
    if not shape or value.shape[-1:] != shape or value.type.size != shape[0]:
        return None  # a scalar has no channels
    inner = core(value)
    return inner if inner.shape == shape else finder.g.reshape(value, shape=shape)


def shifted_norm(finder: Finder, node: Node) -> Value | None:
    """Fold the addition after a batch norm into its shift."""
    for y, other in (node.operands, node.operands[::-1]):
        norm = y.node
        if norm is None or norm.op != "batch_norm" or y is not norm.results[0]:
            continue
        beta = _vector(finder, other, y.shape[-1:])
        if beta is None or finder.number(norm.operands[2]) != 0:
            continue
        x, gamma, _ = norm.operands
        shifted, mean, var = finder.g.emit("batch_norm", x, gamma, beta, **norm.attrs).results
        for spelled, own in list(finder.statistics.items()):
            if own in norm.results:
                finder.statistics[spelled] = (mean, var)[norm.results.index(own) - 1]
        return shifted
    return None


def frozen_norm(finder: Finder, node: Node) -> Value | None:
    """(x - mean) scale / sqrt(var + eps) + shift with kept statistics, as x a + b.

    The vectors a and b are then computed once, or folded into the convolution before.
    """
    g, channels = finder.g, node.result.shape[-1:]
    for y, other in (node.operands, node.operands[::-1]):
        product = y.node
        if product is None or product.op != "mul":
            continue
        for centered, scales in (product.operands, product.operands[::-1]):
            difference = centered.node
            if difference is None or difference.op != "sub" or centered.shape != y.shape:
                continue
            sign, parts = factors(scales)
            vectors = [_vector(finder, part, channels) for part in parts]
            mean, shift = (_vector(finder, v, channels) for v in (difference.operands[1], other))
            param = mean is not None and g.graph.param_of(mean)
            known = [vector for vector in vectors if vector is not None]
            if not param or param.trainable or len(known) < len(parts) or shift is None or sign < 0:
                continue
            scale = _times(finder, known[0], known[1:])
            moved = g.sub(shift, g.mul(mean, scale))
            return g.add(g.mul(difference.operands[0], scale), moved)
    return None
