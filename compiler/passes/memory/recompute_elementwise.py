"""Recompute activations that elementwise nodes make from values that are saved anyway.

A batch norm in training mode saves its operand for its own gradient; its result after the
activation function is then only a multiplication, an addition and a clamp away. In the backward
pass that is one pass over memory that is read there anyway, and it often fuses with the kernel that
computes the activation's mask. Saving the result would occupy the arena from the forward pass on.
Recomputing costs instructions (5 % of a step of MobileNetV2 on a Raspberry Pi 4), which the smaller
arena mostly compensates: on x86 such steps took from 13 % less to 5 % more time. That is cheap for
half the arena, so unlike `recompute` it needs no budget. A transformer's layers save the result of
a norm or an activation in another shape, for the gradient of the next weight: views are recomputed
with their source.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import LOSS, Graph, Node, Value
from pockengine.compiler.ir.writes import delay_writes, storage
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.memory.second_computation import (
    SMALLEST,
    Backward,
    backward_readers,
    compute_again,
    elementwise_chain,
)

MOST_SOURCES = 2
"""Maximum number of large saved values that a recomputation reads: with more, saving is cheaper."""

SMALL_SHARE = 16
"""A value this many times smaller than the result is free to read, such as a norm's scales."""


@dataclass(frozen=True)
class RecomputeElementwise(Pass):
    """Recompute in the backward pass results that elementwise nodes make from saved values.

    Requires: gradients appended, no fusions. Leaves: the same numbers, a smaller largest live set;
    nodes of the backward pass that name what they recompute.
    """

    def run(self, graph: Graph) -> None:
        sources: set[Value] = set()
        loss = graph.outputs[LOSS]
        g, backward = Builder(graph), Backward(graph, loss)
        stored = _by_storage(backward.forward)

        def is_saved(value: Value) -> bool:
            root = storage(value)
            whole = root.node is None or any(backward.reads_whole(each) for each in stored[root])
            return root is not target and whole

        stays = {storage(value) for value in graph.outputs.values()}
        large = {storage(value) for value in backward_readers(graph, loss)} - stays
        for target in [root for root in stored if root in large]:
            names = [value for value in stored[target] if backward.readers(value)]
            if target in sources or not names:
                continue
            chain = elementwise_chain(target, is_saved)
            read = set() if chain is None else _read(chain)
            costly = [value for value in read if value.type.size * SMALL_SHARE > target.type.size]
            if chain is not None and 0 < len(costly) <= MOST_SOURCES:
                sources |= read
                compute_again(g, backward, names, _with_views(chain, names))
        backward.finish()
        delay_writes(graph)


def _by_storage(nodes: Iterable[Node]) -> dict[Value, list[Value]]:
    """All results by the value in whose storage they lie."""
    stored: dict[Value, list[Value]] = {}
    for node in nodes:
        for value in node.results:
            stored.setdefault(storage(value), []).append(value)
    return stored


def _with_views(chain: Sequence[Node], names: Sequence[Value]) -> list[Node]:
    """A chain, and the views of its result."""
    nodes = dict.fromkeys(chain)
    for value in names:
        path: list[Node] = []
        while value.node is not None and value.node not in nodes:
            path.append(value.node)
            value = value.node.operands[0]
        nodes |= dict.fromkeys(reversed(path))
    return list(nodes)


def _read(chain: list[Node]) -> set[Value]:
    """Large values that the chain reads from outside, each resolved to its storage."""
    made = {node.result for node in chain}
    operands = {operand for node in chain for operand in node.operands}
    return {storage(v) for v in operands - made if v.type.size >= SMALLEST}
