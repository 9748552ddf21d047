"""Tile attention in blocks of rows: the whole score matrix is never materialized.

    softmax(q kᵀ, masked) v  =  concat over blocks of rows: softmax(q[rows] kᵀ, masked[rows]) v

Rows of scores are independent, so tiling changes no number. The pass runs before differentiation,
so the backward pass has the same blocks, and recomputation drops each block's scores (Rabe and
Staats, arXiv 2112.05682, with blocks fixed at compile time).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.ops.shape import slice_axis
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.memory.block_bytes import block_bytes

FEWEST_ROWS = 16
"""Minimum rows of a block: fewer make products slow."""


@dataclass(frozen=True)
class _Attention:
    """Nodes from the scores' product to the one with the values, in order."""

    scores: Node
    chain: Sequence[Node]
    result: Node

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the scores: (..., rows, columns)."""
        return self.scores.result.shape


@dataclass(frozen=True)
class TileAttention(Pass):
    """Tile every attention whose scores take more than a sixteenth of the budget in bytes.

    Requires: a forward graph. Leaves: the products and the nodes between them dead.
    """

    memory_budget: int

    def run(self, graph: Graph) -> None:
        users = _users(graph)
        most = block_bytes(self.memory_budget)

        def blocks_of_rows(g: Builder, node: Node) -> tuple[Value] | None:
            found = _attention(node, users)
            blocks = _blocks(found, most) if found else []
            if found is None or len(blocks) < 2:
                return None
            g.append(node)
            parts = [_block(g, found, rows) for rows in blocks]
            return (g.emit("concat", *parts, axis=len(found.shape) - 2).result,)

        rewrite(graph, blocks_of_rows)


def _users(graph: Graph) -> dict[Value, int]:
    """Number of readers of each value; an output counts as a reader."""
    counts: dict[Value, int] = {}
    for value in (*(v for node in graph.nodes for v in node.operands), *graph.outputs.values()):
        counts[value] = counts.get(value, 0) + 1
    return counts


def _attention(result: Node, users: dict[Value, int]) -> _Attention | None:
    """The attention that ends with this product, if its intermediate values have no other users."""
    if result.op != "matmul" or result.attrs["transpose_a"]:
        return None
    shape, chain = result.operands[0].shape, []
    pending, scores = [result.operands[0]], None
    while pending:
        node = pending.pop().node
        inner = node is not None and len(node.results) == 1 and node.result.shape == shape
        if node is None or not inner or users[node.result] != 1:
            continue  # a mask, or a value with other readers: its rows are sliced
        if node.op == "matmul" and not node.attrs["transpose_a"] and scores is None:
            scores = node
        elif lookup(node.op).rows or lookup(node.op).elementwise:
            chain.append(node)
            pending += dict.fromkeys(node.operands)
    if scores is None or not any(lookup(node.op).rows for node in chain):
        return None
    return _Attention(scores, chain[::-1], result)


def _blocks(found: _Attention, most_bytes: int) -> list[range]:
    """Rows of a block whose scores take at most this many bytes, but at least the minimum."""
    rows, bytes_ = found.shape[-2], found.scores.result.type.nbytes
    if bytes_ <= most_bytes:
        return [range(rows)]
    count = -(-rows // max(FEWEST_ROWS, rows * most_bytes // bytes_))
    size = -(-rows // count)
    return [range(begin, min(begin + size, rows)) for begin in range(0, rows, size)]


def _block(g: Builder, found: _Attention, rows: range) -> Value:
    """The same nodes for a block of rows."""
    inside: dict[Value, Value] = {}
    query, keys = found.scores.operands
    cut = slice_axis(g, query, len(query.shape) - 2, rows)
    inside[found.scores.result] = g.emit("matmul", cut, keys, **found.scores.attrs).result
    for node in found.chain:
        operands = (
            _rows_of(g, inside, value, scores=found.shape, rows=rows) for value in node.operands
        )
        inside[node.result] = g.emit(node.op, *operands, **node.attrs).result
    weights = inside[found.result.operands[0]]
    return g.emit("matmul", weights, found.result.operands[1], **found.result.attrs).result


def _rows_of(
    g: Builder, inside: dict[Value, Value], value: Value, scores: Sequence[int], rows: range
) -> Value:
    """Operands of a block: its own values, and slices of those with as many rows as the scores."""
    if value not in inside:
        axis = len(value.shape) - 2
        whole = axis < 0 or value.shape[axis] != scores[-2]
        inside[value] = value if whole else slice_axis(g, value, axis, rows)
    return inside[value]
