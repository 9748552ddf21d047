"""An imported model: its graph, with its origin."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pockengine.compiler.ir import Graph
from pockengine.compiler.optim import Optimizer
from pockengine.errors import CompileError
from pockengine.frontends.frontend import Source, named_optimizer
from pockengine.frontends.registry import find_source


@dataclass(frozen=True)
class Imported:
    """A graph with its loss, and the model it was imported from; None for a `Graph`."""

    graph: Graph
    source: Source | None
    loss: Any
    inputs: Any

    def optimizer(self, requested: Any) -> Optimizer:
        """Return a PockEngine optimizer: unchanged, by name, or converted from the framework's."""
        return (
            named_optimizer(requested) if self.source is None else self.source.optimizer(requested)
        )

    def resized(self, axes: Mapping[str, int], size: int) -> Graph:
        """Import the model for another size along some axes of its inputs."""
        if self.source is None:
            raise CompileError(
                "a Graph has one size; give the framework's model to compile a range"
            )
        return self.source.resized(axes, size, self.loss).graph(self.loss)


def import_model(model: Any, inputs: Any, loss: Any) -> Imported:
    """Import a model of a framework; a `Graph` needs no import."""
    if isinstance(model, Graph):
        return Imported(model, None, loss, inputs)
    source = find_source(model, inputs)
    loss = source.loss(loss)
    return Imported(source.graph(loss), source, loss, inputs)
