"""Run a planned entry as generated code does: one arena, values at their offsets, params in place.

The NumPy oracle computes each node, in the entry's order, and scratch is filled with NaN. So the
results change if an update, a shared offset or scratch overwrites a value too early.
"""

from collections.abc import Mapping

import numpy as np

from pockengine.compiler.ir import Node, Value
from pockengine.compiler.ops.registry import lookup, written_operands
from pockengine.compiler.program import Allocation, Entry

GARBAGE = 0xFF
"""Fill byte that makes every f32 NaN."""


def run_in_place(
    entry: Entry, inputs: Mapping[str, np.ndarray], params: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the outputs; the arrays of `params` are changed in place."""
    memory = _Memory(entry, params)
    for value in entry.graph.inputs:
        memory.of(value)[...] = inputs[value.name]
    for node in entry.graph.nodes:
        _run(node, memory)
    return {name: memory.of(value).copy() for name, value in entry.graph.outputs.items()}


class _Memory:
    """The arena, the params and the constants, as arrays over them."""

    def __init__(self, entry: Entry, params: Mapping[str, np.ndarray]) -> None:
        self.plan, self.constants = entry.plan, entry.graph.constants
        self.arena = np.full(entry.plan.size, GARBAGE, np.uint8)
        self.params = {p.value: params[name] for name, p in entry.graph.params.items()}

    def of(self, value: Value) -> np.ndarray:
        """The memory of a value, following the plan's aliases."""
        root = self.plan.aliases.get(value, value)
        place = self.plan.values.get(root)
        if place is not None:
            data = self._bytes(place).view(value.dtype.numpy)
        else:
            data = self.params[root] if root in self.params else self.constants[root]
        return data.reshape(value.shape)

    def overwrite_scratch(self, node: Node) -> None:
        """Fill a node's scratch with garbage."""
        place = self.plan.scratch.get(node)
        if place is not None:
            self._bytes(place)[...] = GARBAGE

    def _bytes(self, place: Allocation) -> np.ndarray:
        return self.arena[place.offset : place.offset + place.size]


def _run(node: Node, memory: _Memory) -> None:
    if lookup(node.op).view and _same_place(node, memory):
        return
    results = lookup(node.op).eval(tuple(map(memory.of, node.operands)), node.attrs)
    written = [node.operands[index] for index in written_operands(node)]
    fresh = [np.array(result) for result in results]  # a result may be a view of an operand
    for value, result in zip((*node.results, *written), fresh, strict=True):
        memory.of(value)[...] = result
    memory.overwrite_scratch(node)


def _same_place(node: Node, memory: _Memory) -> bool:
    return np.shares_memory(memory.of(node.operands[0]), memory.of(node.result))
