"""Rules of `legalize` for attention: products, a mask, a softmax. The scores are materialized."""

from collections.abc import Mapping, Sequence

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.rewrite import Rule
from pockengine.compiler.ir.types import BOOL
from pockengine.compiler.ops.attention import GRADIENTS, seen_at_all
from pockengine.compiler.ops.shape import slice_axis

Results = tuple[Value, ...]
ROWS = (3,)
SWAPPED = (0, 2, 1, 3)


def _attention(g: Builder, node: Node) -> Results:
    q, k, v, *mask = node.operands
    heads = q.shape[2]
    scores, _ = _scores(g, node, _by_heads(g, q, heads), k=_by_heads(g, k, heads), mask=mask)
    most = g.reduce_max(scores, axes=ROWS, keepdims=True)
    powers = g.exp(g.sub(scores, most))
    total = g.reduce_sum(powers, axes=ROWS, keepdims=True)
    y = g.matmul(g.div(powers, total), _by_heads(g, v, heads))
    stats = g.concat(most, total, axis=3)
    return g.transpose(y, perm=SWAPPED), g.transpose(stats, perm=SWAPPED)


def _gradient(g: Builder, node: Node) -> Results:
    heads, groups = node.operands[1].shape[2], node.operands[2].shape[2]
    dy, q, k, v, stats, delta = (_by_heads(g, x, heads) for x in node.operands[:6])
    scores, seen = _scores(g, node, q, k=k, mask=node.operands[6:])
    most, total = (slice_axis(g, stats, 3, range(place, place + 1)) for place in range(2))
    shares = g.div(g.exp(g.sub(scores, most)), total)
    if node.op == "attention_dv":
        return (_over_groups(g, g.matmul(shares, dy, transpose_a=True), groups),)
    dscores = g.mul(shares, g.sub(g.matmul(dy, v, transpose_b=True), delta))
    for condition in seen:
        dscores = g.where(condition, dscores, g.scalar(0.0))
    dscores = g.mul(dscores, g.scalar(node.attrs["scale"]))
    if node.op == "attention_dk":
        return (_over_groups(g, g.matmul(dscores, q, transpose_a=True), groups),)
    return (_over_groups(g, g.matmul(dscores, k), heads),)


def _scores(
    g: Builder, node: Node, q: Value, k: Value, mask: Sequence[Value]
) -> tuple[Value, list[Value]]:
    """Return the masked scores, and the conditions under which they depend on q and k."""
    scores = g.mul(g.matmul(q, k, transpose_b=True), g.scalar(node.attrs["scale"]))
    seen = list[Value]()
    if node.attrs["causal"]:
        seen.append(g.constant(seen_at_all(*scores.shape[-2:]), "causal"))
    for value in mask:
        if value.dtype is BOOL:
            seen.append(value)
        else:
            scores = g.add(scores, value)
    for condition in seen:
        scores = g.where(condition, scores, g.scalar(node.attrs["hidden"]))
    return scores, seen


def _by_heads(g: Builder, x: Value, heads: int) -> Value:
    """Repeat groups for their heads: return (batch, heads, rows, size)."""
    batch, rows, groups, size = x.shape
    if groups != heads:
        wide = g.reshape(x, shape=(batch, rows, groups, 1, size))
        wide = g.broadcast_to(wide, shape=(batch, rows, groups, heads // groups, size))
        x = g.reshape(wide, shape=(batch, rows, heads, size))
    return g.transpose(x, perm=SWAPPED)


def _over_groups(g: Builder, x: Value, groups: int) -> Value:
    """Sum (batch, heads, rows, size) over each group's heads; return it by rows."""
    batch, heads, *matrix = x.shape
    if groups != heads:
        parted = g.reshape(x, shape=(batch, groups, heads // groups, *matrix))
        x = g.reduce_sum(parted, axes=(2,))
    return g.transpose(x, perm=SWAPPED)


RULES: Mapping[str, Rule] = {"attention": _attention, **dict.fromkeys(GRADIENTS, _gradient)}
