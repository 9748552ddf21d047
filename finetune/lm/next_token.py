"""Logits of one token per row, for generation: whole logits dominate a small decoder's memory."""

from pockengine.compiler.ir import F32, Builder, Graph, Value
from pockengine.compiler.ops.registry import lookup
from pockengine.finetune.lm.packing import LABELS, LOGITS
from pockengine.finetune.task import IGNORED


def predict_one_token(graph: Graph, batch: int, length: int) -> None:
    """Replace the output logits (batch, length, vocabulary) by those of one token per row.

    The output is (batch, vocabulary), at the row's only token whose label is not ignored. A graph
    whose logits are not an elementwise function of a product is left unchanged.
    """
    whole = graph.outputs[LOGITS]
    labels = next(value for value in graph.inputs if value.name == LABELS)
    if whole.shape[:2] != (batch, length) or not _rows_independent(whole, whole.type.size):
        return
    g = Builder(graph)
    follows = g.ne(labels, g.scalar(IGNORED, labels.dtype))
    before = g.slice(follows, start=(0, 1), stop=(batch, length), step=(1, 1))
    chosen = g.pad(g.cast(before, dtype=F32.value), low=(0, 0), high=(0, 1), value=0.0)
    graph.outputs[LOGITS] = _one_row(g, whole, whole.type.size, chosen)


def _rows_independent(value: Value, size: int) -> bool:
    node = value.node
    if value.type.size != size:
        return len(value.shape) <= 1
    if node is None:
        return False
    if node.op == "matmul":
        return not node.attrs["transpose_a"] and len(node.operands[1].shape) == 2
    passes = lookup(node.op).elementwise or node.op == "reshape"
    return passes and all(_rows_independent(operand, size) for operand in node.operands)


def _one_row(g: Builder, value: Value, size: int, chosen: Value) -> Value:
    """Return (batch, columns) for the rows where `chosen` (batch, length) is one."""
    node = value.node
    if node is None or value.type.size != size:
        return value
    if node.op == "matmul":
        x, weight = node.operands
        x = g.reshape(x, shape=(*chosen.shape, x.shape[-1]))
        weights = g.reshape(chosen, shape=(*chosen.shape, 1))
        row = g.reduce_sum(g.mul(x, weights), axes=(1,))
        return g.emit("matmul", row, weight, **node.attrs).result
    operands = [_one_row(g, operand, size, chosen) for operand in node.operands]
    if node.op == "reshape":
        return operands[0]
    return g.emit(node.op, *operands, **node.attrs).result
