"""Save activations in 16 bits: half the bytes, with gradients of the rounded activations.

The forward pass is exact. Large f32 values that the backward pass reads are rounded where they are
computed, and each reader widens them right before use. Not rounded: values already recomputed or
packed to bits; logits, which are read again at once; and the values from which attention recomputes
its softmax. A value computed from params only, such as a weight decoded from fewer bits, is not an
activation: it is recomputed. Activations that are compared with each other stay exact: the gradient
of a maximum looks for the element that equals it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import LOSS, Graph, Node, Value
from pockengine.compiler.ir.types import BOOL, F32, DType
from pockengine.compiler.ir.writes import storage
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.memory.second_computation import (
    Backward,
    backward_readers,
    is_mask,
)
from pockengine.compiler.passes.option_types import OneOf

TYPES = (DType.BF16.value, DType.F16.value)


@dataclass(frozen=True)
class SaveRounded(Pass):
    """Save large f32 activations as `dtype` between their producer and their readers after `loss`.

    Requires: gradients appended, no fusions. Leaves: slices of such an activation are slices of the
    rounded one, for `schedule` to move to it.
    """

    dtype: Annotated[str, OneOf(TYPES)]

    def run(self, graph: Graph) -> None:
        loss = graph.outputs[LOSS]
        assert loss.node is not None
        readers = backward_readers(graph, loss)
        exact = {storage(value) for value, nodes in readers.items() if _is_compared(value, nodes)}
        exact |= {storage(value) for value in loss.node.operands}  # the first that is read again
        exact |= {
            value for node in graph.nodes if node.op == "attention" for value in node.results[1:]
        }
        exact |= _of_params(graph)
        rounder = _Rounder(graph, loss, DType(self.dtype))
        for value in readers:
            if (
                value.dtype is F32
                and storage(value) not in exact
                and storage(value).node is not None
            ):
                for reader in rounder.backward.readers(value):
                    rounder.widen(reader, value)
        rounder.finish()


def _of_params(graph: Graph) -> set[Value]:
    """Return the values that depend on params and constants only, not on data."""
    known = {param.value for param in graph.params.values()} | set(graph.constants)
    for node in graph.nodes:
        if node.operands and known.issuperset(node.operands):
            known |= set(node.results)
    return {storage(value) for value in known if value.node is not None}


def _is_compared(value: Value, readers: Sequence[Node]) -> bool:
    """Whether a node compares it with anything but scalars."""
    comparing = (node for node in readers if node.results and node.results[0].dtype is BOOL)
    return any(not is_mask(node, value) for node in comparing)


class _Rounder:
    """Rounds values where they are computed, once per storage, and widens them at their readers."""

    def __init__(self, graph: Graph, loss: Value, dtype: DType) -> None:
        self.g, self.dtype = Builder(graph), dtype
        self.backward = Backward(graph, loss)
        self._rounded: dict[Value, Value] = {}
        self._behind: dict[Node, list[Node]] = {}

    def widen(self, reader: Node, value: Value) -> None:
        """Make a node read the rounded value; readers of a slice widen late, one by one."""
        rounded = self._round(value)
        if not lookup(reader.op).slices:
            self._read_widened(reader, value, rounded)
            return
        (part,) = self._insert(reader, reader.op, rounded, **reader.attrs)
        for user in self.backward.readers(reader.result):
            self._read_widened(user, reader.result, part)
        self.backward.remove(reader)

    def finish(self) -> None:
        """Put every rounding right after the value's producer."""
        forward = [
            each for node in self.backward.forward for each in (node, *self._behind.get(node, ()))
        ]
        self.backward.forward = forward
        self.backward.finish()

    def _round(self, value: Value) -> Value:
        if value not in self._rounded:
            node = value.node
            assert node is not None
            of = self._round(node.operands[0]) if lookup(node.op).view else value
            behind = self._behind.setdefault(node, [])
            with self.g.into(behind), self.g.scope(node.scope):
                self._rounded[value] = (
                    self.g.cast(value, dtype=self.dtype.value)
                    if of is value
                    else self.g.emit(node.op, of, **node.attrs).result
                )
        return self._rounded[value]

    def _read_widened(self, reader: Node, value: Value, rounded: Value) -> None:
        (wide,) = self._insert(reader, "cast", rounded, dtype=F32.value)
        self.backward.replace(value, wide, only=reader)

    def _insert(self, reader: Node, op: str, *operands: Value, **attrs: Any) -> Sequence[Value]:
        """Build a node right before one in the backward pass."""
        made: list[Node] = []
        with self.g.into(made), self.g.scope(reader.scope):
            node = self.g.emit(op, *operands, **attrs)
        self.backward.insert(made, reader)
        return node.results
