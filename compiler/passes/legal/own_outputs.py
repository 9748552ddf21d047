"""Copy outputs that are params or constants: entries return values in the arena."""

from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node
from pockengine.compiler.ir.writes import storage, written_values
from pockengine.compiler.passes.base import Pass


@dataclass(frozen=True)
class OwnOutputs(Pass):
    """Copy every output that is a param or constant, or a view of one, before it is written.

    Leaves: each output is an input, or a value computed in the arena. Runs after simplification.
    """

    def run(self, graph: Graph) -> None:
        own = {*graph.inputs}
        copies: list[Node] = []
        g = Builder(graph)
        with g.into(copies):
            for name, value in graph.outputs.items():
                root = storage(value)
                if root.node is None and root not in own:
                    copied = g.broadcast_to(root, shape=root.shape)
                    graph.outputs[name] = (
                        copied if value is root else g.reshape(copied, shape=value.shape)
                    )
        writes = (place for place, node in enumerate(graph.nodes) if written_values(node))
        first = next(writes, len(graph.nodes))
        graph.nodes[first:first] = copies
