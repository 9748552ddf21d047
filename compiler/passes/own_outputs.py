"""Outputs that are params or constants become copies: an entry gives back what is in the arena."""

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph


def own_outputs(graph: Graph) -> None:
    """Copy every output that no node computes and that is no input.

    Leaves: each output is an input or the result of a node. Comes after what simplifies.
    """
    g = Builder(graph)
    for name, value in graph.outputs.items():
        if value.node is None and value not in graph.inputs:
            graph.outputs[name] = g.broadcast_to(value, shape=value.shape)
