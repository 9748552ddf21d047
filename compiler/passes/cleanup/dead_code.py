"""Dead code elimination: drop nodes that no output and no update needs."""

from dataclasses import dataclass

from pockengine.compiler.ir.graph import Graph, Value
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.base import Pass


@dataclass(frozen=True)
class DeadCode(Pass):
    """Drop unused nodes, params and constants.

    Leaves: only nodes that are updates, or that an output or update depends on. Inputs stay: they
    are the program's signature.
    """

    def run(self, graph: Graph) -> None:
        live: set[Value] = set(graph.outputs.values())
        live_nodes = []
        for node in reversed(graph.nodes):
            if lookup(node.op).writes or any(result in live for result in node.results):
                live.update(node.operands)
                live_nodes.append(node)
        graph.nodes[:] = reversed(live_nodes)
        graph.constants = {value: data for value, data in graph.constants.items() if value in live}
        graph.params = {name: param for name, param in graph.params.items() if param.value in live}
