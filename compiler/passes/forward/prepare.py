"""Apply a scheme and an entry to the model: adapters, trained parameters, outputs."""

from collections.abc import Set
from dataclasses import dataclass

from pockengine.compiler.ir.graph import LOSS, Graph
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.sparse.lora import Adapter, add_adapters


@dataclass(frozen=True)
class AddAdapters(Pass):
    """Add the product of a LoRA adapter's factors to every reader of its weight."""

    adapters: tuple[Adapter, ...]

    def run(self, graph: Graph) -> None:
        add_adapters(graph, self.adapters)


@dataclass(frozen=True)
class SetTrainable(Pass):
    """Mark the params of these names as trainable, and freeze all others."""

    names: Set[str]

    def run(self, graph: Graph) -> None:
        for name, param in graph.params.items():
            param.trainable = name in self.names


@dataclass(frozen=True)
class KeepOutputs(Pass):
    """Drop all outputs except the loss and these names. Leaves: their nodes, unread."""

    names: Set[str] = frozenset()

    def run(self, graph: Graph) -> None:
        required = {LOSS, *self.names}
        graph.outputs = {name: value for name, value in graph.outputs.items() if name in required}
