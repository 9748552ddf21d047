"""Recognise what TensorFlow and Keras spell out in small steps and our IR has one op for.

    batch norm    x s + (beta - mean s),  s = rsqrt(var + eps) gamma,  over all dims but the last
    layer norm    the same over trailing dims
    statistics    state = a state + b statistic                 -> ema_update
    dropout       where(uniform >= p, x / (1 - p), 0)            -> dropout
    cross entropy sum(-log_softmax(logits)[labels]) / n          -> cross_entropy

One op costs less memory than its parts, and the batch norm and the dropout of a training graph must
be known as such to be taken out of the inference graph. What does not match stays as it is; what
other frameworks spell out likewise is left to `pockengine.frontends.idioms`, which comes after.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir import BOOL, F32, Builder, Graph, Node, Value
from pockengine.compiler.ir.graph import resolve

LINEAR = ("add", "sub", "neg")

DEPTH = 4
"""How deep the sums and products of one norm are nested."""

Rule = Callable[["_Rewriter", Node], dict[Value, Value] | None]
"""Return what stands for which values from this node on, or None where it does not match."""


@dataclass
class _Rewriter:
    """One pass over a graph: what is built, and what stands for what by now."""

    g: Builder
    replacement: dict[Value, Value]

    def number(self, value: Value) -> float | None:
        """Return the number that a constant of one element is."""
        data = self.g.graph.constants.get(_flat(_core(value)))
        # The shortest decimal of the same f32: what the user wrote.
        return float(str(data.flat[0])) if data is not None and data.size == 1 else None


def recognise_idioms(graph: Graph) -> None:
    """Replace what matches a rule by its op. Leaves: dead nodes for dead code to drop."""
    rewriter = _Rewriter(Builder(graph), {})
    nodes: list[Node] = []
    with rewriter.g.into(nodes):
        for node in list(graph.nodes):
            node.operands = tuple(resolve(v, rewriter.replacement) for v in node.operands)
            with rewriter.g.scope(node.scope):
                found = RULES[node.op](rewriter, node) if node.op in RULES else None
            if found is None:
                nodes.append(node)
            else:
                rewriter.replacement.update(found)
    graph.nodes[:] = nodes
    graph.outputs = {
        name: resolve(value, rewriter.replacement) for name, value in graph.outputs.items()
    }


def _core(value: Value) -> Value:
    """Look through what broadcasting ignores: repeated elements, leading dimensions of size 1."""
    node = value.node
    while node is not None and (node.op == "broadcast_to" or _adds_ones(node)):
        value = node.operands[0]
        node = value.node
    return value


def _adds_ones(node: Node) -> bool:
    if node.op != "reshape":
        return False
    old, new = node.operands[0].shape, node.result.shape
    short = min(len(old), len(new))
    cut = len(old) - short, len(new) - short
    return old[cut[0] :] == new[cut[1] :] and not {*old[: cut[0]], *new[: cut[1]]} - {1}


def _flat(value: Value) -> Value:
    """Look through reshapes, for operands whose order of elements is all that matters."""
    while value.node is not None and value.node.op == "reshape":
        value = value.node.operands[0]
    return value


def _made_by(value: Value, op: str) -> Node | None:
    node = _core(value).node
    return node if node is not None and node.op == op else None


def _terms(value: Value, sign: int = 1, depth: int = DEPTH) -> Iterator[tuple[int, Value]]:
    """Split a sum into its terms, as (sign, value)."""
    node = value.node
    if node is None or node.op not in LINEAR or not depth:
        yield sign, value
        return
    if node.op != "neg":
        yield from _terms(node.operands[0], sign, depth - 1)
    second = sign if node.op == "add" else -sign
    yield from _terms(node.operands[-1], second, depth - 1)


def _factors(value: Value, depth: int = DEPTH) -> tuple[int, list[Value]]:
    """Split a product into its sign and its factors, views looked through."""
    inner = _core(value)
    node = inner.node
    if node is None or node.op not in ("mul", "neg") or not depth:
        return 1, [inner]
    sign, factors = _factors(node.operands[0], depth - 1)
    if node.op == "neg":
        return -sign, factors
    other_sign, others = _factors(node.operands[1], depth - 1)
    return sign * other_sign, factors + others


@dataclass(frozen=True)
class _Statistics:
    """Mean and biased variance of x over `axes`."""

    x: Value
    mean: Node
    var: Node
    eps: float

    @property
    def over_rows(self) -> bool:
        """Whether the mean is over all dimensions but the last: a batch norm's."""
        return self.mean.attrs["axes"] == tuple(range(len(self.x.shape) - 1))

    @property
    def over_columns(self) -> bool:
        """Whether the mean is over trailing dimensions: a layer norm's."""
        rank, axes = len(self.x.shape), self.mean.attrs["axes"]
        return 0 not in axes and axes == tuple(range(rank - len(axes), rank))


def _statistics(r: _Rewriter, root: Value) -> _Statistics | None:
    """Match rsqrt(mean((x - mean(x))^2) + eps)."""
    rsqrt = _made_by(root, "rsqrt")
    total = _made_by(rsqrt.operands[0], "add") if rsqrt else None
    if total is None:
        return None
    eps = r.number(total.operands[1])
    var = _made_by(total.operands[0], "reduce_mean")
    square = _made_by(var.operands[0], "square") if var else None
    centred = _made_by(square.operands[0], "sub") if square else None
    mean = _made_by(_attached(centred.operands[1]), "reduce_mean") if centred else None
    if eps is None or var is None or centred is None or mean is None:
        return None
    x = centred.operands[0]
    same = mean.operands[0] is x and mean.attrs["axes"] == var.attrs["axes"]
    return _Statistics(x, mean, var, eps) if same else None


def _attached(value: Value) -> Value:
    """Look through the stop_gradient of a mean: the variance's gradient by it is zero anyway."""
    node = value.node
    return node.operands[0] if node is not None and node.op == "stop_gradient" else value


def _norm(r: _Rewriter, node: Node) -> dict[Value, Value] | None:
    """Match x s + (beta - mean s) with s = rsqrt(var + eps), perhaps times gamma."""
    terms = list(_terms(node.result))
    products = [(sign, *_factors(term)) for sign, term in terms]
    for _, inner, factors in products:
        for factor in factors if inner == 1 else ():
            found = _statistics(r, factor)
            if found is not None:
                return _match_norm(r, node, found, terms)
    return None


def _match_norm(
    r: _Rewriter, node: Node, found: _Statistics, terms: list[tuple[int, Value]]
) -> dict[Value, Value] | None:
    """Sort the terms into x s, -mean s and the rest, and build the norm."""
    scales: dict[str, list[Value]] = {}
    rest = []
    for sign, term in terms:
        inner, factors = _factors(term)
        kind = {1: _core(found.x), -1: found.mean.result}.get(sign * inner)
        if kind is not None and kind in factors:
            factors.remove(kind)
            scales["x" if kind is _core(found.x) else "mean"] = factors
        else:
            rest.append((sign, term))
    same = "x" in scales and "mean" in scales and set(scales["x"]) == set(scales["mean"])
    if not same or len(rest) > 1 or any(sign != 1 for sign, _ in rest):
        return None
    gammas = [factor for factor in scales["x"] if _statistics(r, factor) is None]
    if len(gammas) != len(scales["x"]) - 1 or len(gammas) > 1:
        return None
    gamma = gammas[0] if gammas else None
    beta = _core(rest[0][1]) if rest else None
    if found.over_rows:
        return _batch_norm(r.g, node, found, gamma, beta)
    return _layer_norm(r.g, node, found, gamma, beta) if found.over_columns else None


def _batch_norm(
    g: Builder, node: Node, found: _Statistics, gamma: Value | None, beta: Value | None
) -> dict[Value, Value] | None:
    channels = found.x.shape[-1:]
    if any(part is not None and part.shape != channels for part in (gamma, beta)):
        return None
    scale = g.constant(np.ones(channels, np.float32)) if gamma is None else gamma
    shift = g.constant(np.zeros(channels, np.float32)) if beta is None else beta
    y, mean, var = g.emit("batch_norm", found.x, scale, shift, eps=found.eps).results
    return {
        node.result: y,
        **_as_seen(g, found.mean.result, mean),
        **_as_seen(g, found.var.result, var),
    }


def _as_seen(g: Builder, old: Value, new: Value) -> dict[Value, Value]:
    """Let the (C,) views of a statistic be the norm's own."""
    views = [
        node.result
        for node in g.graph.nodes
        if node.op == "reshape" and node.operands[0] is old and node.result.shape == new.shape
    ]
    return dict.fromkeys([old] * (old.shape == new.shape) + views, new)


def _layer_norm(
    g: Builder, node: Node, found: _Statistics, gamma: Value | None, beta: Value | None
) -> dict[Value, Value] | None:
    x, row = found.x, 1
    parts = [part for part in (gamma, beta) if part is not None]
    if any(part.shape != x.shape[len(x.shape) - len(part.shape) :] for part in parts):
        return None
    for axis in found.mean.attrs["axes"]:
        row *= x.shape[axis]
    rows = (x.type.size // row, row)
    flat = x if x.shape == rows else g.reshape(x, shape=rows)
    y = g.emit("layer_norm", flat, eps=found.eps).results[0]
    y = y if x.shape == rows else g.reshape(y, shape=x.shape)
    y = y if gamma is None else g.mul(y, gamma)
    return {node.result: y if beta is None else g.add(y, beta)}


def _statistic_update(r: _Rewriter, node: Node) -> dict[Value, Value] | None:
    """state = a state + b value, with a = 1 - b scale  =>  ema_update."""
    state, new = node.operands
    weights: dict[Value, float] = {}
    for weight, part in _linear(r, new):
        part = resolve(part, r.replacement)
        weights[part] = weights.get(part, 0.0) + weight
    share = weights.pop(state, 0.0)
    if len(weights) != 1 or not 0 < share < 1:
        return None
    ((value, weight),) = weights.items()
    if value.shape != state.shape:
        return None
    scale = weight / (1 - share)
    # Close enough to 1 - share in f32: the statistic itself. A variance may come scaled.
    exact = abs(scale - 1) < 1e-4
    momentum = weight if exact else 1 - share
    r.g.emit("ema_update", state, value, momentum=momentum, scale=1.0 if exact else scale)
    return {}


def _linear(r: _Rewriter, value: Value, factor: float = 1.0) -> Iterator[tuple[float, Value]]:
    """Split a value into (factor, part) by sums and by products with numbers."""
    for sign, term in _terms(value):
        node = term.node
        numbers = [r.number(part) for part in node.operands] if node else []
        if node is not None and node.op == "mul" and any(n is not None for n in numbers):
            side = 0 if numbers[0] is not None else 1
            yield from _linear(r, node.operands[1 - side], factor * sign * (numbers[side] or 0.0))
        else:
            yield factor * sign, term


def _dropout(r: _Rewriter, node: Node) -> dict[Value, Value] | None:
    """where(uniform >= p, x / (1 - p), 0), perhaps with one number for several elements of x."""
    g = r.g
    condition, kept, zero = node.operands
    compare = _made_by(condition, "ge")
    p = r.number(compare.operands[1]) if compare else None
    random = _drawn(r, compare.operands[0]) if compare else None
    if p is None or random is None or not 0 < p < 1 or r.number(zero) != 0:
        return None
    x = _before_scaling(r, kept, 1 / (1 - p))
    if x.shape != node.result.shape:
        return None
    chances = {"p": p, "stream": random.attrs["stream"]}
    if random.result.shape == x.shape:
        return {node.result: g.dropout(x, random.operands[0], **chances)}
    ones = g.constant(np.ones(random.result.shape, np.float32))
    return {node.result: g.mul(x, g.dropout(ones, random.operands[0], **chances))}


def _before_scaling(r: _Rewriter, scaled: Value, factor: float) -> Value:
    """Return x of `x factor`; our dropout scales by itself."""
    node = scaled.node
    if node is not None and node.op == "mul":
        for side, other in (node.operands, node.operands[::-1]):
            number = r.number(other)
            if number is not None and abs(number / factor - 1) < 1e-5:
                return side
    return r.g.mul(scaled, r.g.scalar(1 / factor))


def _drawn(r: _Rewriter, value: Value) -> Node | None:
    """Match numbers in [0, 1) as they are drawn, times 1 or plus 0."""
    parts = [(weight, part) for weight, part in _linear(r, value) if r.number(part) != 0]
    if len(parts) != 1 or parts[0][0] != 1:
        return None
    return _made_by(parts[0][1], "random_uniform")


def _mean_cross_entropy(r: _Rewriter, node: Node) -> dict[Value, Value] | None:
    """mean(-log_softmax(logits)[labels]), also as a sum over a number  =>  cross_entropy."""
    if node.op == "div":
        total, count = _made_by(node.operands[0], "reduce_sum"), r.number(node.operands[1])
    else:
        total, count = node, float(node.operands[0].type.size)
    negated = _made_by(total.operands[0], "neg") if total else None
    picked = _flat(negated.operands[0]).node if negated else None
    if picked is None or picked.op != "take_along":
        return None
    scores = _made_by(picked.operands[0], "log_softmax")
    if scores is None or node.result.shape:
        return None
    logits = scores.operands[0]
    if len(logits.shape) != 2 or picked.result.type.size != count or count != logits.shape[0]:
        return None
    labels = _as_given(picked.operands[1])
    if labels.shape != logits.shape[:1]:
        labels = r.g.reshape(labels, shape=logits.shape[:1])
    return {node.result: r.g.cross_entropy(logits, labels)}


def _as_given(labels: Value) -> Value:
    """Undo casts to float and back: a class that f32 cannot hold is no class of the logits."""
    labels = _flat(labels)
    while labels.node is not None and labels.node.op == "cast":
        before = _flat(labels.node.operands[0])
        if before.dtype is BOOL or (before.dtype is F32 and before.node is None):
            break
        labels = before
    return labels


RULES: dict[str, Rule] = {
    "add": _norm,
    "assign": _statistic_update,
    "div": _mean_cross_entropy,
    "reduce_mean": _mean_cross_entropy,
    "sub": _norm,
    "where": _dropout,
}
