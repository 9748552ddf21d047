"""Cross entropy over blocks of classes: neither logits nor decoded head are materialized.

    log sum exp(x W) = m + log sum over blocks b of exp(m_b - m) sum exp(x W_b - m_b)
    loss             = mean over rows of (log sum exp(x W) - x W[:, label])
    m_b = max(x W_b), m = max over b of m_b

A language model's logits, and its head where that is stored in fewer bits, are by far its largest
values. Each block's logits are needed for their sum only, so recomputation drops them, and the
label's logit is a dot product of its own (Wijmans et al., arXiv 2411.09009; here the blocks are
part of the graph, and the backward pass follows by differentiation). One element per row of a log
softmax, the log-probability of a token, is the same without the mean.
"""

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ir.types import F32
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.ops.shape import slice_axis
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.memory.block_bytes import block_bytes
from pockengine.compiler.passes.memory.columns import (
    even_blocks,
    part,
    picked,
    splits,
    trained_values,
)


@dataclass(frozen=True)
class TileVocabulary(Pass):
    """Cut cross entropies and picked log softmaxes of frozen linear layers into blocks of classes.

    `written` names the parameters that some entry updates: a trained head is not tiled.
    Requires: a forward graph. Leaves: the whole product as dead nodes.
    """

    memory_budget: int
    written: Set[str] = frozenset()

    def run(self, graph: Graph) -> None:
        users = graph.users()
        trained = trained_values(graph, self.written)
        single = {
            value
            for value, readers in users.items()
            if len(readers) == 1 and value not in graph.outputs.values()
        }
        most = block_bytes(self.memory_budget)

        def blocks_of_classes(g: Builder, node: Node) -> tuple[Value] | None:
            source = _source(node, single)
            logits = None if source is None else _Logits.of(source, single, trained)
            if logits is None:
                return None
            blocks = list(logits.blocks(most))
            cut = _loss if node.op == "cross_entropy" else _log_probability
            return (cut(g, node, logits, blocks),) if len(blocks) > 1 else None

        rewrite(graph, blocks_of_classes)


def _source(node: Node, single: Set[Value]) -> Value | None:
    """Return the logits of a cross entropy, or of a log softmax of which one per row is read."""
    if node.op == "cross_entropy":
        return node.operands[0]
    if node.op != "take_along":
        return None
    logs, index = node.operands
    last = len(logs.shape) - 1
    softmax = logs.node if logs in single else None
    if softmax is None or softmax.op != "log_softmax" or index.shape[-1] != 1:
        return None
    return softmax.operands[0] if node.attrs["axis"] == last else None


@dataclass(frozen=True)
class _Logits:
    """Logits (..., classes) that are elementwise functions of one product with a frozen weight."""

    value: Value
    product: Node

    @classmethod
    def of(cls, value: Value, single: Set[Value], trained: Set[Value]) -> "_Logits | None":
        """Return the logits, or None if they are of another form, or if they have other users."""
        product: Node | None = None
        pending = [value]
        while pending:
            current = pending.pop()
            node = current.node
            if current.shape[-1:] != value.shape[-1:]:
                continue
            if node is None:
                if len(current.shape) != 1 or current in trained:
                    return None
                continue
            if current not in single:
                return None
            if product is None and splits(node, trained):
                product = node
            elif _keeps_classes(node):
                pending += node.operands
            else:
                return None
        return None if product is None else cls(value, product)

    def blocks(self, most_bytes: int) -> Iterator[range]:
        """Return blocks of classes whose logits and weights each take at most this many bytes."""
        classes = self.value.shape[-1]
        column = F32.itemsize * max(
            math.prod(self.value.shape[:-1]), self.product.operands[0].shape[-1]
        )
        return even_blocks(classes, most_bytes // column)


def _keeps_classes(node: Node) -> bool:
    same = node.operands[0].shape[-1:] == node.result.shape[-1:]
    return lookup(node.op).elementwise or (node.op in ("reshape", "broadcast_to") and same)


def _loss(g: Builder, node: Node, logits: _Logits, blocks: Sequence[range]) -> Value:
    """Return the mean over the rows that count of log sum exp less the label's logit."""
    labels, classes = node.operands[1], logits.value.shape[-1]
    ignored = g.scalar(node.attrs["ignore_index"], labels.dtype)
    zero = g.scalar(0, labels.dtype)
    counted = g.ne(labels, ignored)
    index = g.where(counted, labels, zero)
    inside = g.logical_and(g.ge(index, zero), g.lt(index, g.scalar(classes, labels.dtype)))
    rows = _label_logits(g, logits, index)
    losses = g.sub(_log_sum_exp(g, logits, blocks), rows)
    losses = g.where(inside, losses, g.scalar(math.nan))
    total = g.reduce_sum(g.where(counted, losses, g.scalar(0.0)), axes=(0,))
    return g.div(total, g.reduce_sum(g.cast(counted, dtype=F32.value), axes=(0,)))


def _log_probability(g: Builder, node: Node, logits: _Logits, blocks: Sequence[range]) -> Value:
    """Return the log softmax at an index of each row, (..., 1)."""
    index = g.reshape(node.operands[1], shape=(math.prod(logits.value.shape[:-1]),))
    taken = _label_logits(g, logits, index)
    return g.reshape(g.sub(taken, _log_sum_exp(g, logits, blocks)), shape=node.result.shape)


def _log_sum_exp(g: Builder, logits: _Logits, blocks: Sequence[range]) -> Value:
    """Return log sum exp of each row, (...,), from the maximum and the sum of each block."""
    largest, sums = [], []
    last = (len(logits.value.shape) - 1,)
    for block in blocks:
        values = _block(g, logits.value, logits.product, block)
        largest.append(g.stop_gradient(g.reduce_max(values, axes=last, keepdims=True)))
        sums.append(g.reduce_sum(g.exp(g.sub(values, largest[-1])), axes=last, keepdims=True))
    most = largest[0]
    for other in largest[1:]:
        most = g.maximum(most, other)
    total = None
    for maximum, sum_ in zip(largest, sums, strict=True):
        scaled = g.mul(sum_, g.exp(g.sub(maximum, most)))
        total = scaled if total is None else g.add(total, scaled)
    assert total is not None
    return g.reshape(g.add(g.log(total), most), shape=logits.value.shape[:-1])


def _block(g: Builder, value: Value, product: Node, block: range) -> Value:
    """Return the classes of a block of the logits, or of their sources."""
    node = value.node
    if value.shape[-1:] != (product.result.shape[-1],):
        return value
    if node is None:
        return slice_axis(g, value, 0, block)
    if node is product:
        return part(g, node, block)
    operands = [_block(g, operand, product, block) for operand in node.operands]
    return _again(g, node, operands, len(block))


def _label_logits(g: Builder, logits: _Logits, index: Value) -> Value:
    """Return the logit of each row's label, (...,)."""
    rows = logits.value.shape[:-1]
    taken = _one_class(g, logits.value, logits.product, index=index, rows=rows)
    return g.reshape(taken, shape=rows)


def _one_class(
    g: Builder, value: Value, product: Node, index: Value, rows: tuple[int, ...]
) -> Value:
    """Return part of the logits with one class in place of all; `rows` are those of its reader."""
    node = value.node
    if value.shape[-1:] != (product.result.shape[-1],):
        return value
    if node is None:
        return g.reshape(g.take(value, index, axis=0), shape=(*rows, 1))
    if node is product:
        x = node.operands[0]
        columns = g.reshape(picked(g, node, index), shape=x.shape)
        return g.reduce_sum(g.mul(x, columns), axes=(len(x.shape) - 1,), keepdims=True)
    own = node.result.shape[:-1]
    operands = [_one_class(g, operand, product, index=index, rows=own) for operand in node.operands]
    return _again(g, node, operands, 1)


def _again(g: Builder, node: Node, operands: Sequence[Value], classes: int) -> Value:
    """Clone a node of the logits for some of the classes."""
    attrs = dict(node.attrs)
    if "shape" in attrs:
        attrs["shape"] = (*attrs["shape"][:-1], classes)
    return g.emit(node.op, *operands, **attrs).result
