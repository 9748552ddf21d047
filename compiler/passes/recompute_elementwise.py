"""Activations that elementwise nodes make from what is kept anyway are made again, not kept.

A batch norm in training mode keeps its operand for its own gradient; its result, after the
activation function, is then a multiplication, an addition and a clamp away. On the way back that is
one pass over memory that is read there anyway, and often joins the kernel that computes the
activation's mask; keeping the result would have filled the arena from the forward pass on. It costs
instructions (5 % of a step of MobileNetV2 on a Raspberry Pi 4), which the smaller arena mostly
gives back: on x86 such steps took from 13 % less to 5 % more time. For half the arena that is
little, so it needs no budget, unlike `recompute`.
"""

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.writes import delay_writes
from pockengine.compiler.passes.second_computation import (
    SMALLEST,
    Backward,
    compute_again,
    elementwise_chain,
    readers_on_the_way_back,
    split_at,
)

MOST_SOURCES = 2
"""Large kept values that a second computation may read: more, and keeping the result is cheaper."""


def recompute_elementwise(graph: Graph, loss: Value) -> dict[Value, Value]:
    """Let go of activations that elementwise nodes make from kept values.

    Requires: gradients appended, no fusions. Leaves: the same numbers, a smaller largest live set.
    Returns the second computation of each value that now has one.
    """
    sources: set[Value] = set()
    copies: dict[Value, Value] = {}
    values = _in_forward_order(graph, loss)
    g, backward = Builder(graph), Backward(graph, loss)

    def is_kept(value: Value) -> bool:
        return value is not wanted and backward.reads_whole(value)

    for wanted in values:
        if wanted in sources:
            continue
        chain = elementwise_chain(wanted, is_kept)
        read = set() if chain is None else _read(chain)
        if chain is not None and 0 < len(read) <= MOST_SOURCES:
            sources |= read
            copies |= compute_again(g, backward, wanted, chain)
    backward.finish()
    delay_writes(graph)
    return copies


def _in_forward_order(graph: Graph, loss: Value) -> list[Value]:
    readers = readers_on_the_way_back(graph, loss)
    forward, _ = split_at(graph, loss)
    return [value for node in forward for value in node.results if value in readers]


def _read(chain: list[Node]) -> set[Value]:
    """Large values that the chain reads and does not make."""
    made = {node.result for node in chain}
    operands = {operand for node in chain for operand in node.operands}
    return {v for v in operands - made if v.type.size >= SMALLEST}
