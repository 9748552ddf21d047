"""From a training-mode forward graph to inference: running statistics and no updates."""

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.rewrite import lower
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.dead_code import dead_code
from pockengine.compiler.passes.differentiate import LOSS


def infer_only(graph: Graph, *, loss: bool) -> None:
    """Make the graph compute its outputs, with or without the loss, as in evaluation mode.

    Leaves: no update, no unread input, no dropout, and no batch_norm but those that keep no running
    statistics.
    """
    use_running_statistics(graph)
    lower(graph, {"dropout": lambda g, node: (node.operands[0],)})
    if not loss:
        graph.outputs = {name: value for name, value in graph.outputs.items() if name != LOSS}
    dead_code(graph)
    read = {operand for node in graph.nodes for operand in node.operands}
    read.update(graph.outputs.values())
    graph.inputs = [value for value in graph.inputs if value in read]


def batch_statistics(value: Value) -> list[Value]:
    """Return the statistics of batches that this value is a weighted sum of."""
    node = value.node
    if node is None:
        return []
    definition = lookup(node.op)
    if not definition.elementwise or len(definition.linear) < len(node.operands):
        return [value]
    return [part for operand in node.operands for part in batch_statistics(operand)]


def use_running_statistics(graph: Graph) -> None:
    """Replace batch norms that keep running statistics by arithmetic with these; drop updates."""
    running = {
        value: node.operands[0]
        for node in graph.nodes
        if node.op == "ema_update"
        for value in batch_statistics(node.operands[1])
    }
    graph.nodes[:] = [node for node in graph.nodes if not lookup(node.op).writes]

    def frozen(g: Builder, node: Node) -> tuple[Value, ...]:
        x, gamma, beta = node.operands
        _, mean, var = node.results
        if mean not in running or var not in running:
            return g.emit("batch_norm", x, gamma, beta, **node.attrs).results
        mean, var = running[mean], running[var]
        scale = g.mul(gamma, g.rsqrt(g.add(var, g.scalar(node.attrs["eps"]))))
        shift = g.sub(beta, g.mul(mean, scale))
        return g.add(g.mul(x, scale), shift), mean, var

    lower(graph, {"batch_norm": frozen})
