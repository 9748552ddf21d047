"""Recognise what a framework spells out in arithmetic: softmax, norms, dropout, running averages.

Frameworks that trace down to single operations (JAX, Keras) hide what our IR has an op for, with a
better kernel, a leaner gradient and, for batch norm and dropout, another meaning when predicting.
Each rule looks at one node and returns the value that can stand for its result. What is recognised
is computed more exactly than it was spelled, never differently.
"""

from collections.abc import Callable, Mapping

import numpy as np

from pockengine.compiler.ir import Builder, Graph, Value
from pockengine.compiler.ir.graph import Node, replace_operands, resolve

Rule = Callable[["Finder", Node], Value | None]
Rules = Mapping[str, tuple[Rule, ...]]
"""Rules by the op of the node that they look at."""
SHAPING = ("reshape", "broadcast_to")
NO_LABEL = 1 - 2**31
"""No label is left out of a mean."""
STOPPING = (*SHAPING, "stop_gradient")


def recognise(graph: Graph, rules: "Rules | None" = None) -> None:
    """Rewrite the idioms of a forward graph. Leaves: what they were made of, for dead code."""
    known = RULES if rules is None else rules
    finder = Finder(graph)
    nodes: list[Node] = []
    replacement: dict[Value, Value] = {}
    with finder.g.into(nodes):
        for node in list(graph.nodes):
            node.operands = tuple(resolve(value, replacement) for value in node.operands)
            with finder.g.scope(node.scope):
                tried = (rule(finder, node) for rule in known.get(node.op, ()))
                found = next((value for value in tried if value), None)
                moved = node.op == "assign" and _running_average(finder, node)
            if found is not None and found.type == node.result.type:
                replacement[node.result] = found
            elif not moved:
                nodes.append(node)
    graph.nodes[:] = nodes
    replace_operands(graph.nodes, replacement)
    graph.outputs = {name: resolve(value, replacement) for name, value in graph.outputs.items()}


class Finder:
    """A graph with its builder, and the batch norms found so far."""

    def __init__(self, graph: Graph) -> None:
        self.g = Builder(graph)
        self.statistics: dict[Value, Value] = {}
        """What a batch norm's statistics were spelled as: the op's own."""

    def number(self, value: Value) -> float | None:
        """Return the number that a value is everywhere, if it is known."""
        data = self.g.graph.constants.get(core(value))
        if data is None or not data.size or not np.all(data == data.flat[0]):
            return None
        return float(data.flat[0])

    def split(self, node: Node) -> tuple[Value, float] | None:
        """Split a commutative node into a value and a number."""
        for a, b in (node.operands, node.operands[::-1]):
            number = self.number(b)
            if number is not None and self.number(a) is None:
                return a, number
        return None


def core(value: Value, through: tuple[str, ...] = SHAPING) -> Value:
    """Look through what only adds dimensions of one or repeats."""
    while value.node is not None and value.node.op in through:
        value = value.node.operands[0]
    return value


def made_by(value: Value, op: str) -> Node | None:
    """Return the node of this op that computes a value, reshapes and repeats aside."""
    node = core(value).node
    return node if node is not None and node.op == op else None


def _reduced_last(node: Node | None) -> bool:
    """Whether a reduction is over the last axis alone."""
    return node is not None and node.attrs["axes"] == (len(node.operands[0].shape) - 1,)


def _row_maximum(finder: Finder, value: Value, x: Value) -> bool:
    """Whether a value is the maximum of each row of x, however it is guarded against infinities."""
    node = core(value, STOPPING).node  # a gradient through it would cancel
    while node is not None and node.op in ("maximum", "where"):
        parts = node.operands[-2:]
        inner = [part for part in parts if finder.number(part) is None]
        node = core(inner[0], STOPPING).node if len(inner) == 1 else None
    return (
        node is not None
        and node.op == "reduce_max"
        and node.operands[0] is x
        and _reduced_last(node)
    )


def _shifted(finder: Finder, value: Value) -> Value | None:
    """x, for x minus the maximum of its row."""
    node = value.node
    if node is None or node.op != "sub":
        return None
    x, most = node.operands
    return x if x.shape == value.shape and _row_maximum(finder, most, x) else None


def _softmax(finder: Finder, node: Node) -> Value | None:
    """exp(x - max) / sum of exp(x - max)."""
    top, bottom = node.operands
    total, exponent = made_by(bottom, "reduce_sum"), top.node
    if total is None or exponent is None or exponent.op != "exp":
        return None
    if total.operands[0] is not top or not _reduced_last(total):
        return None
    x = _shifted(finder, exponent.operands[0])
    return None if x is None else finder.g.softmax(x)


def _log_softmax(finder: Finder, node: Node) -> Value | None:
    """x - max - log sum of exp(x - max)."""
    shifted, log = node.operands[0], made_by(node.operands[1], "log")
    total = made_by(log.operands[0], "reduce_sum") if log else None
    exponent = total.operands[0].node if total else None
    if exponent is None or exponent.op != "exp" or exponent.operands[0] is not shifted:
        return None
    x = _shifted(finder, shifted)
    return None if x is None or not _reduced_last(total) else finder.g.log_softmax(x)


def _log_sum_exp(finder: Finder, node: Node | None) -> Value | None:
    """x, for the logarithm of the sum of exp(x) over each row, guarded by its maximum."""
    if node is None or node.op != "add":
        return None
    for log, most in (node.operands, node.operands[::-1]):
        inner = made_by(log, "log")
        total = made_by(inner.operands[0], "abs") or inner if inner else None
        total = made_by(total.operands[0], "reduce_sum") if total else None
        exponent = total.operands[0].node if total and _reduced_last(total) else None
        if exponent is None or exponent.op != "exp":
            continue
        x = _shifted(finder, exponent.operands[0])
        if x is not None and _row_maximum(finder, most, x):
            return x
    return None


def _cross_entropy(finder: Finder, node: Node) -> Value | None:
    """Mean of the rows' log sum exp(x) - x[label]: the op, which gives NaN for a foreign label."""
    losses = node.operands[0].node
    if node.result.shape or losses is None or losses.op != "sub":
        return None
    x = _log_sum_exp(finder, losses.operands[0].node)
    picked = _picked(finder, losses.operands[1])
    if x is None or picked is None or core(picked.operands[0]) is not core(x):
        return None
    g, labels, rows = finder.g, picked.operands[1], x.type.size // x.shape[-1]
    along = picked.operands[0].shape[picked.attrs["axis"]]
    if labels.type.size != rows or along != x.shape[-1] or losses.result.type.size != rows:
        return None
    logits = g.reshape(x, shape=(rows, x.shape[-1]))
    return g.cross_entropy(logits, g.reshape(labels, shape=(rows,)), ignore_index=NO_LABEL)


def _picked(finder: Finder, value: Value) -> Node | None:
    """Return the read along a dimension, with NaN for what is outside of it or with nothing."""
    filled = made_by(value, "where")
    if filled is None:
        return made_by(value, "take_along")
    fill = finder.g.graph.constants.get(core(filled.operands[2]))
    missing = fill is not None and np.isnan(fill).all()
    return made_by(filled.operands[1], "take_along") if missing else None


def _dropout(finder: Finder, node: Node) -> Value | None:
    """where(uniform < kept share, x / share, 0)."""
    condition, kept, other = node.operands
    test, scaled = condition.node, kept.node
    if test is None or scaled is None or test.op != "lt" or scaled.op != "div":
        return None
    draw, share = test.operands[0].node, finder.number(test.operands[1])
    if draw is None or draw.op != "random_uniform" or finder.number(other) != 0:
        return None
    x, divisor = scaled.operands
    if share is None or finder.number(divisor) != share or draw.attrs["shape"] != x.shape:
        return None
    rate = round(1 - share, 7)
    return finder.g.dropout(x, draw.operands[0], p=rate, stream=draw.attrs["stream"])


def _variance_of(finder: Finder, value: Value, x: Value, mean: Value) -> bool:
    """Whether a value is the variance of x about this mean: E(x - mean)^2, or E x^2 - mean^2."""
    node = core(value).node
    if node is not None and node.op == "maximum":  # with 0: rounding may make it negative
        inner = finder.split(node)
        node = core(inner[0]).node if inner and inner[1] == 0 else None
    if node is None:
        return False
    if node.op == "sub":
        squares, square = (
            made_by(part, "reduce_mean") or core(part).node for part in node.operands
        )
        root = None if square is None else _squared(square.results[0])
        return _mean_of_square(squares, x) and root is not None and core(root) is mean
    squared = _squared(node.operands[0]) if node.op == "reduce_mean" else None
    centred = None if squared is None else squared.node
    return (
        centred is not None
        and centred.op == "sub"
        and centred.operands[0] is x
        and core(centred.operands[1]) is mean
    )


def _mean_of_square(node: Node | None, x: Value) -> bool:
    if node is None or node.op != "reduce_mean":
        return False
    return _squared(node.operands[0]) is x


def _squared(value: Value) -> Value | None:
    """Return what a value is the square of."""
    node = value.node
    if node is None or node.op not in ("square", "mul"):
        return None
    return node.operands[0] if node.operands[0] is node.operands[-1] else None


def _factors(value: Value) -> list[Value]:
    """Return the factors of a product."""
    node = value.node
    if node is None or node.op != "mul":
        return [value]
    return [factor for operand in node.operands for factor in _factors(operand)]


def _inverse_root(finder: Finder, value: Value) -> tuple[Value, float] | None:
    """Return var and eps for 1 / sqrt(var + eps)."""
    root = made_by(value, "rsqrt")
    total = core(root.operands[0]).node if root else None
    return finder.split(total) if total is not None and total.op == "add" else None


def _norm(finder: Finder, node: Node) -> Value | None:
    """(x - mean) / sqrt(var + eps), perhaps times a scale: a batch norm's or a layer norm's."""
    for centred, other in (node.operands, node.operands[::-1]):
        factors = _factors(other)
        roots = [(f, found) for f in factors if (found := _inverse_root(finder, f)) is not None]
        if len(roots) != 1 or centred.shape != node.result.shape:
            continue
        ((root, (var, eps)),) = roots
        rest = [factor for factor in factors if factor is not root]
        norm = _centred_norm(finder, centred, var, eps, rest)
        mean = made_by(var, "reduce_mean")
        if norm is None and _mean_of_square(mean, centred) and _reduced_last(mean):
            norm = _times(finder, finder.g.emit("rms_norm", centred, eps=eps).results[0], rest)
        if norm is not None:
            return norm
    return None


def _divided_norm(finder: Finder, node: Node) -> Value | None:
    """(x - mean) / sqrt(var + eps)."""
    centred, deviation = node.operands
    root = made_by(deviation, "sqrt")
    total = core(root.operands[0]).node if root else None
    found = finder.split(total) if total is not None and total.op == "add" else None
    if found is None or centred.shape != node.result.shape:
        return None
    return _centred_norm(finder, centred, *found, [])


def _centred_norm(
    finder: Finder, centred: Value, var: Value, eps: float, scales: list[Value]
) -> Value | None:
    node = centred.node
    if node is None or node.op != "sub":
        return None
    x, mean = node.operands[0], core(node.operands[1])
    reduction = mean.node
    if reduction is None or reduction.op != "reduce_mean" or reduction.operands[0] is not x:
        return None
    if x.shape != centred.shape or not _variance_of(finder, var, x, mean):
        return None
    if _reduced_last(reduction):
        return _times(finder, finder.g.emit("layer_norm", x, eps=eps).results[0], scales)
    if reduction.attrs["axes"] == tuple(range(len(x.shape) - 1)):
        return _batch_norm(finder, x, (mean, core(var)), eps, scales)
    return None


def _times(finder: Finder, y: Value, factors: list[Value]) -> Value:
    for factor in factors:
        y = finder.g.mul(y, factor)
    return y


def _batch_norm(
    finder: Finder, x: Value, spelled: tuple[Value, Value], eps: float, scales: list[Value]
) -> Value | None:
    """Use the op, with its scale if there is one; the shift is taken in by `_shift`."""
    g, channels = finder.g, x.shape[-1:]
    gamma = g.constant(np.ones(channels, np.float32))
    if len(scales) == 1 and (per_channel := _vector(finder, scales[0], channels)) is not None:
        gamma, scales = per_channel, []
    beta = g.constant(np.zeros(channels, np.float32))
    y, mean, var = g.emit("batch_norm", x, gamma, beta, eps=eps).results
    finder.statistics.update(zip(spelled, (mean, var), strict=True))
    return _times(finder, y, scales)


def _vector(finder: Finder, value: Value, shape: tuple[int, ...]) -> Value | None:
    """Return the vector over the channels that a value repeats."""
    if not shape or value.shape[-1:] != shape or value.type.size != shape[0]:
        return None  # a scalar has no channels
    inner = core(value)
    return inner if inner.shape == shape else finder.g.reshape(value, shape=shape)


def _shift(finder: Finder, node: Node) -> Value | None:
    """Take the addition behind a batch norm in as its shift."""
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


def _frozen_norm(finder: Finder, node: Node) -> Value | None:
    """(x - mean) scale / sqrt(var + eps) + shift with kept statistics, as x a + b.

    The vectors a and b are then computed once, or folded into the convolution before.
    """
    g, channels = finder.g, node.result.shape[-1:]
    for y, other in (node.operands, node.operands[::-1]):
        product = y.node
        if product is None or product.op != "mul":
            continue
        for centred, scales in (product.operands, product.operands[::-1]):
            difference = centred.node
            if difference is None or difference.op != "sub" or centred.shape != y.shape:
                continue
            factors = [_vector(finder, factor, channels) for factor in _factors(scales)]
            mean, shift = (_vector(finder, v, channels) for v in (difference.operands[1], other))
            kept = mean is not None and g.graph.param_of(mean)
            if not kept or kept.trainable or None in factors or shift is None:
                continue
            scale = factors[0]
            for factor in factors[1:]:
                scale = g.mul(scale, factor)
            moved = g.sub(shift, g.mul(mean, scale))
            return g.add(g.mul(difference.operands[0], scale), moved)
    return None


def _running_average(finder: Finder, node: Node) -> bool:
    """Turn state = (1 - m) state + m value into the update that says so."""
    state, new = node.operands
    total = core(new, STOPPING).node
    if total is None or total.op != "add":
        return False
    parts: dict[bool, tuple[Value, float]] = {}
    for part in total.operands:
        product = part.node
        found = finder.split(product) if product is not None and product.op == "mul" else None
        if found is None:
            return False
        parts[found[0] is state] = found
    if set(parts) != {True, False} or abs(parts[True][1] + parts[False][1] - 1) > 1e-6:
        return False
    value, momentum = parts[False]
    value = finder.statistics.get(core(value), value)
    if value.type != state.type:
        return False
    finder.g.emit("ema_update", state, value, momentum=momentum)
    return True


RULES: Rules = {
    "add": (_shift, _frozen_norm),
    "div": (_softmax, _divided_norm),
    "mul": (_norm,),
    "reduce_mean": (_cross_entropy,),
    "sub": (_log_softmax,),
    "where": (_dropout,),
}
