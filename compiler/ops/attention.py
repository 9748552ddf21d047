"""Attention as one op, which never materializes its scores, and its three gradients.

    attention     scores = scale q kᵀ, masked;  y = softmax(scores) v;  stats
    attention_dv  dv = softmax(scores)ᵀ dy
    attention_dq  dq = scale dscores k,   dscores = softmax(scores) (dy vᵀ - delta)
    attention_dk  dk = scale dscoresᵀ q

Queries are (batch, rows, heads, size), keys and values (batch, columns, groups, size), as layers
produce them: heads / groups consecutive heads share a group's keys. A mask broadcasts to the
scores, (batch, heads, rows, columns): f32 is added, a bool marks visible scores. With `causal` a
row sees the columns up to its own index. Hidden scores are `hidden`. A mask has no gradient.

The backward pass recomputes the softmax (FlashAttention-2, arXiv 2307.08691). It reads delta =
sum(dy y) of each row, and stats, (batch, rows, heads, 2): a row's maximum score, and its sum of
exponentials relative to it; a single log-sum-exp would lose the sum beside a huge score.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import BOOL, F32, TensorType
from pockengine.compiler.ops.elementwise import broadcast_shape
from pockengine.compiler.ops.registry import Arrays, Types, Vjp, define
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]
ATTRS = {"scale": 1.0, "causal": False, "hidden": -math.inf}
GRADIENTS = ("attention_dq", "attention_dk", "attention_dv")


def _infer(types: Types, attrs: Attrs) -> Types:
    q, k, v, *mask = types
    for type_ in (q, k, v):
        if type_.rank != 4 or type_.dtype is not F32:
            raise GraphError(f"attention needs f32 (batch, rows, heads, size), not {type_}")
    batch, _, heads, size = q.shape
    same = k.shape[:3] == v.shape[:3] and (batch, size) == (k.shape[0], k.shape[3])
    if not same or heads % k.shape[2]:
        raise GraphError(f"attention of {q}, {k}, {v}: sizes differ, or a group has no whole heads")
    scores = scores_shape(q, k)
    for type_ in mask:
        fits = type_.dtype in (BOOL, F32) and broadcast_shape(type_.shape, scores) == scores
        if not fits or type_.rank != 4:
            raise GraphError(f"attention's mask {type_} is no bool or f32 for scores of {scores}")
    return q.with_shape((*q.shape[:3], v.shape[3])), q.with_shape((*q.shape[:3], 2))


def _infer_gradient(operand: int) -> Callable[[Types, Attrs], Types]:
    def infer(types: Types, attrs: Attrs) -> Types:
        dy, *inner, stats, delta = types[:6]
        y, rows = _infer((*inner, *types[6:]), attrs)
        if (dy, stats, delta) != (y, rows, y.with_shape((*y.shape[:3], 1))):
            raise GraphError(f"attention's cotangent {dy} or its rows {stats}, {delta} do not fit")
        return (inner[operand],)

    return infer


def scores_shape(q: TensorType, k: TensorType) -> tuple[int, ...]:
    """Return (batch, heads, rows, columns), the layout in which other ops store scores."""
    batch, rows, heads, _ = q.shape
    return batch, heads, rows, k.shape[1]


def seen_at_all(rows: int, columns: int) -> np.ndarray:
    """Return which columns each causal row sees."""
    return np.tri(rows, columns, dtype=np.bool_)


def _by_heads(x: np.ndarray, heads: int) -> np.ndarray:
    """Repeat groups for their heads: return (batch, heads, rows, size)."""
    return x.repeat(heads // x.shape[2], axis=2).swapaxes(1, 2).astype(np.float64)


def _over_groups(x: np.ndarray, groups: int) -> np.ndarray:
    """Sum (batch, heads, rows, size) over each group's heads; return it by rows."""
    batch, heads, *matrix = x.shape
    summed = x.reshape(batch, groups, heads // groups, *matrix).sum(2)
    return np.asarray(summed.swapaxes(1, 2), np.float32)


def _visible(scores: np.ndarray, mask: Arrays, attrs: Attrs) -> np.ndarray:
    """Which scores depend on q and k."""
    seen = np.ones(scores.shape, np.bool_)
    for array in mask:
        seen &= array if array.dtype == np.bool_ else True
    return seen & seen_at_all(*scores.shape[-2:]) if attrs["causal"] else seen


def _scores(
    q: np.ndarray, k: np.ndarray, mask: Arrays, attrs: Attrs
) -> tuple[np.ndarray, np.ndarray]:
    """Masked scores and which of them are visible.

    A mask is added in f32: a huge number absorbs the score.
    """
    heads = q.shape[2]
    scores = _by_heads(q, heads) @ _by_heads(k, heads).swapaxes(-1, -2) * attrs["scale"]
    scores = scores.astype(np.float32)
    for array in mask:
        scores = scores if array.dtype == np.bool_ else scores + array
    seen = _visible(scores, mask, attrs)
    return np.where(seen, scores, np.float32(attrs["hidden"])).astype(np.float64), seen


def _eval(arrays: Arrays, attrs: Attrs) -> Arrays:
    q, k, v, *mask = arrays
    scores, _ = _scores(q, k, tuple(mask), attrs)
    most = scores.max(-1, keepdims=True)
    powers = np.exp(scores - most)
    total = powers.sum(-1, keepdims=True)
    y = powers / total @ _by_heads(v, q.shape[2])
    stats = np.concatenate([most, total], -1)
    return y.swapaxes(1, 2).astype(np.float32), stats.swapaxes(1, 2).astype(np.float32)


def _eval_gradient(op: str) -> Callable[[Arrays, Attrs], Arrays]:
    def evaluate(arrays: Arrays, attrs: Attrs) -> Arrays:
        dy, q, k, v, stats, delta, *mask = arrays
        scores, seen = _scores(q, k, tuple(mask), attrs)
        heads = q.shape[2]
        q, dy, stats, delta = (_by_heads(x, heads) for x in (q, dy, stats, delta))
        shares = np.exp(scores - stats[..., :1]) / stats[..., 1:]
        if op == "attention_dv":
            return (_over_groups(shares.swapaxes(-1, -2) @ dy, v.shape[2]),)
        toward = dy @ _by_heads(v, heads).swapaxes(-1, -2) - delta
        dscores = np.where(seen, shares * toward, 0) * attrs["scale"]
        if op == "attention_dk":
            return (_over_groups(dscores.swapaxes(-1, -2) @ q, k.shape[2]),)
        return (_over_groups(dscores @ _by_heads(k, heads), heads),)

    return evaluate


def _vjp(op: str) -> Vjp:
    def rule(g: "Builder", node: Node, dy: Value) -> Value:
        y, stats = node.results
        delta = g.reduce_sum(g.mul(dy, y), axes=(3,), keepdims=True)
        q, k, v, *mask = node.operands
        return g.emit(op, dy, q, k, v, stats, delta, *mask, **node.attrs).result

    return rule


def _cost(products: int) -> Callable[[Node], int]:
    """Multiply-adds of this many products over all scores; a causal triangle has half."""

    def cost(node: Node) -> int:
        start = 0 if node.op == "attention" else 1
        q, k, v = (value.type for value in node.operands[start : start + 3])
        size = math.prod(scores_shape(q, k)) * (q.shape[3] + v.shape[3]) * products // 2
        return size // 2 if node.attrs["causal"] else size

    return cost


define(
    "attention",
    "q k v mask",
    attrs=ATTRS,
    infer=_infer,
    eval=_eval,
    vjp={name[-1]: _vjp(name) for name in GRADIENTS},
    cost=_cost(2),
    linear=(2,),
    optional=1,
)
for _operand, _name in enumerate(GRADIENTS):
    define(
        _name,
        "dy q k v stats delta mask",
        attrs=ATTRS,
        infer=_infer_gradient(_operand),
        eval=_eval_gradient(_name),
        cost=_cost(2 if _name == "attention_dv" else 3),
        optional=1,
    )
