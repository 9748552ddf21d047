"""Recognize ops that frameworks express by arithmetic: softmax, norms, dropout, running averages.

Frameworks that trace down to single operations (JAX, Keras) hide ops that have better kernels,
smaller gradients and, for batch norm and dropout, another meaning in prediction. One table serves
all frontends, so a model gives the same graph through each. A rule takes one node and returns the
replacement of its result. Recognized idioms are computed more accurately than written, never
differently; everything else stays unchanged.
"""

from pockengine.compiler.ir import Graph, Value
from pockengine.compiler.ir.graph import Node, resolve
from pockengine.frontends.idioms.activations import gelu
from pockengine.frontends.idioms.averages import running_average
from pockengine.frontends.idioms.dropout import dropout
from pockengine.frontends.idioms.finder import Finder, Rules
from pockengine.frontends.idioms.losses import mean_of_log_softmax, mean_of_log_sum_exp
from pockengine.frontends.idioms.norms import (
    divided_norm,
    expanded_norm,
    frozen_norm,
    multiplied_norm,
    shifted_norm,
)
from pockengine.frontends.idioms.rows import log_softmax, softmax

RULES: Rules = {
    "add": (expanded_norm, shifted_norm, frozen_norm),
    "div": (mean_of_log_softmax, softmax, divided_norm),
    "mul": (gelu, multiplied_norm),
    "reduce_mean": (mean_of_log_softmax, mean_of_log_sum_exp),
    "sub": (expanded_norm, log_softmax),
    "where": (dropout,),
}


def recognize(graph: Graph, rules: Rules = RULES) -> None:
    """Rewrite the idioms of a forward graph. Leaves: the replaced nodes dead."""
    finder = Finder(graph)
    nodes: list[Node] = []
    replacement: dict[Value, Value] = {}
    with finder.g.into(nodes):
        for node in list(graph.nodes):
            node.operands = tuple(resolve(value, replacement) for value in node.operands)
            with finder.g.scope(node.scope):
                results = (rule(finder, node) for rule in rules.get(node.op, ()))
                result = next((value for value in results if value is not None), None)
                moved = node.op == "assign" and running_average(finder, node)
            if result is not None and result.type == node.result.type:
                replacement[node.result] = result
            elif not moved:
                nodes.append(node)
    graph.nodes[:] = nodes
    graph.outputs = {name: resolve(value, replacement) for name, value in graph.outputs.items()}
