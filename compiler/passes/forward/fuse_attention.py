"""Fuse attention to one op, for targets with kernels that do not materialize the scores.

    softmax(scale (q kᵀ), masked) v  =>  attention(q, k, v, mask)

The mask is added, or a bool that marks visible scores (`where`), or absent; a constant lower
triangle becomes `causal`. The pass runs on the forward graph, so the backward pass has the op's
gradients. Not fused: dropout between the softmax and the values, a trained mask, scores with other
users, and heads longer than the target supports.
"""

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ir.types import F32
from pockengine.compiler.ops.attention import seen_at_all
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.forward.by_rows import SWAPPED, by_rows
from pockengine.compiler.target import Target


@dataclass(frozen=True)
class _Scores:
    """The masking between the product of queries and keys and the softmax.

    `seen` are conditions, each with its value for visible scores; other scores are `hidden`.
    """

    product: Node
    scale: float
    added: Value | None
    seen: Sequence[tuple[Value, bool]]
    hidden: float


@dataclass(frozen=True)
class FuseAttention(Pass):
    """Replace every attention that the target has a kernel for by one node.

    Requires: a forward graph, simplified. `written` are the params that some entry updates. Leaves:
    the products and the nodes between them dead.
    """

    target: Target
    written: Set[str] = frozenset()

    def run(self, graph: Graph) -> None:
        finder = _Finder(graph, self.written)

        def rule(g: Builder, node: Node) -> tuple[Value] | None:
            found = finder.scores_of(node)
            y = _attention(g, found, node, self.target) if found else _followed(g, node)
            return None if y is None else (y,)

        rewrite(graph, rule)


class _Finder:
    """Matcher that walks back from the product with the values; knows users and trained values."""

    def __init__(self, graph: Graph, written: Set[str]) -> None:
        self._constants = graph.constants
        self._readers: dict[Value, int] = {}
        for value in (*(v for n in graph.nodes for v in n.operands), *graph.outputs.values()):
            self._readers[value] = self._readers.get(value, 0) + 1
        self._trains = {param.value for name, param in graph.params.items() if name in written}
        for node in graph.nodes:
            if not self._trains.isdisjoint(node.operands):
                self._trains.update(node.results)

    def scores_of(self, result: Node) -> _Scores | None:
        """Return the scores of an attention that ends with this product, if it is one."""
        softmax = self._maker(result.operands[0]) if result.op == "matmul" else None
        if softmax is None or softmax.op != "softmax" or result.attrs["transpose_a"]:
            return None
        found = self._masked(softmax.operands[0])
        if found is None or found.product.result.shape != softmax.result.shape:
            return None
        masks = [found.added, *(condition for condition, _ in found.seen)]
        return None if any(mask in self._trains for mask in masks) else found

    def _masked(self, value: Value) -> _Scores | None:
        """Match in reverse order: masking by `where`, then an added mask, then a factor."""
        seen: list[tuple[Value, bool]] = []
        hidden = -math.inf
        while (node := self._maker(value)) is not None and node.op == "where":
            condition, yes, no = node.operands
            shown = self._number(no) is not None
            number = self._number(no if shown else yes)
            if number is None or (seen and number != hidden):
                return None
            seen.append((condition, shown))
            value, hidden = (yes if shown else no), number
        pairs: list[tuple[Value, Value | None]] = [(value, None)]
        if node is not None and node.op == "add":
            pairs = [(node.operands[0], node.operands[1]), (node.operands[1], node.operands[0])]
        for inner, added in pairs:
            product, scale = self._scaled(inner)
            if product is not None and (added is None or added.dtype is F32):
                return _Scores(product, scale, added, seen=seen, hidden=hidden)
        return None

    def _scaled(self, value: Value) -> tuple[Node | None, float]:
        """Return the product of which a value is a multiple, and the factor."""
        scale = 1.0
        while (node := self._maker(value)) is not None and node.op in ("mul", "div"):
            first, second = node.operands
            divides = node.op == "div"
            if not divides and self._number(first) is not None:
                first, second = second, first
            factor = self._number(second)
            if not factor:
                return None, scale
            value, scale = first, scale / factor if divides else scale * factor
        return (node if node is not None and node.op == "matmul" else None), scale

    def _number(self, value: Value) -> float | None:
        """Return the number that all elements of a constant equal, if there is one."""
        data = self._constants.get(value)
        if data is None or data.dtype != np.float32 or not data.size:
            return None
        return float(data.flat[0]) if np.all(data == data.flat[0]) else None

    def _maker(self, value: Value) -> Node | None:
        """Return the node that makes a value, if the value has one user."""
        return value.node if self._readers.get(value) == 1 else None


def _attention(g: Builder, found: _Scores, result: Node, target: Target) -> Value | None:
    """Build the op for a match; None if its sizes or masks are unsupported."""
    product = found.product
    q = _matrix(g, product.operands[0], product.attrs["transpose_a"])
    k = _matrix(g, product.operands[1], not product.attrs["transpose_b"])
    v = _matrix(g, result.operands[1], result.attrs["transpose_b"])
    *lead, rows, columns = product.result.shape
    alike = all(list(x.shape[:-2]) == lead and x.dtype is F32 for x in (q, k, v))
    if not alike or len(lead) > 2 or max(q.shape[-1], v.shape[-1]) > target.attention:
        return None
    causal, conditions = _conditions(g, found, rows, columns)
    masks = [*conditions, *([] if found.added is None else [found.added])]
    if len(masks) > 1 or (target.triangles_alone and not _is_triangle(found, causal, conditions)):
        return None
    queries = by_rows(g, _of_four(g, q, lead), shared=False)
    keys, values = (by_rows(g, _of_four(g, x, lead), shared=True) for x in (k, v))
    if keys.shape[2] != values.shape[2]:
        keys, values = (by_rows(g, _of_four(g, x, lead), shared=False) for x in (k, v))
    operands = (queries, keys, values, *(_of_four(g, mask, lead) for mask in masks))
    attrs = {"scale": found.scale, "causal": causal, "hidden": found.hidden}
    y = g.emit("attention", *operands, **attrs).results[0]
    if y.shape[2] > 1:  # with one head, a reshape is enough
        y = g.transpose(y, perm=SWAPPED)
    return y if y.shape == result.result.shape else g.reshape(y, shape=result.result.shape)


def _is_triangle(found: _Scores, causal: bool, conditions: Sequence[Value]) -> bool:
    """Whether scores are hidden: above the diagonal, or possibly by a mask.

    A decoder's mask often depends on positions in the batch.
    """
    matrix = [c for c in conditions if c.shape[-2:] == found.product.result.shape[-2:]]
    return found.hidden == -math.inf and (causal or bool(matrix))


def _followed(g: Builder, node: Node) -> Value | None:
    """Rebuild elementwise users of attention's result in the layout of rows.

    The transpose of heads after them then cancels; zeroing rows without visible scores comes before
    it.
    """
    turned = [value for value in node.operands if _is_by_heads(value)]
    if len(turned) != 1 or not lookup(node.op).elementwise:
        return None
    if node.result.shape != turned[0].shape:
        return None
    operands = []
    for value in node.operands:
        if value is turned[0]:
            assert value.node is not None
            operands.append(value.node.operands[0])
        else:
            swapped = g.transpose(_of_four(g, value), perm=SWAPPED) if value.shape else value
            operands.append(swapped)
    return g.transpose(g.emit(node.op, *operands, **node.attrs).result, perm=SWAPPED)


def _is_by_heads(value: Value) -> bool:
    """Whether a value is attention's result with heads permuted outwards."""
    node = value.node
    if node is None or node.op != "transpose" or node.attrs["perm"] != SWAPPED:
        return False
    made = node.operands[0].node
    return made is not None and made.op == "attention"


def _matrix(g: Builder, x: Value, transposed: bool) -> Value:
    last = len(x.shape) - 1
    return g.transpose(x, perm=(*range(last - 1), last, last - 1)) if transposed else x


def _of_four(g: Builder, x: Value, lead: Sequence[int] = ()) -> Value:
    """Give a tensor four dimensions; a single leading one is samples, not heads."""
    missing = 4 - len(x.shape)
    if not missing:
        return x
    ones = (1,) * missing
    samples = len(lead) == 1 and missing == 1
    return g.reshape(x, shape=(x.shape[0], 1, *x.shape[1:]) if samples else (*ones, *x.shape))


def _conditions(
    g: Builder, found: _Scores, rows: int, columns: int
) -> tuple[bool, Sequence[Value]]:
    """Return whether the scores are causal, and the one other condition on them."""
    causal, others = False, list[Value]()
    triangle = seen_at_all(rows, columns)
    for condition, shown in found.seen:
        data = g.graph.constants.get(condition)
        if data is not None and _is_matrix(data, triangle if shown else ~triangle):
            causal = True
        else:
            others.append(condition if shown else g.logical_not(condition))
    if len(others) > 1:
        both = others[0]
        for other in others[1:]:
            both = g.logical_and(both, other)
        others = [both]
    return causal, others


def _is_matrix(data: np.ndarray, matrix: np.ndarray) -> bool:
    """Whether every matrix of a constant equals this one."""
    return data.shape[-2:] == matrix.shape and bool(np.all(data == matrix))
