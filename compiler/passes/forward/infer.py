"""From a training-mode forward graph to inference: running statistics, no updates."""

from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import LOSS, Graph, Node, Value, replace_operands
from pockengine.compiler.ir.rewrite import lower
from pockengine.compiler.ir.types import Shape
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.cleanup.dead_code import DeadCode


@dataclass(frozen=True)
class InferOnly(Pass):
    """Make the graph compute its outputs in evaluation mode, with or without the loss.

    Leaves: no update, no unread input, no dropout, and no batch_norm except those without running
    statistics.
    """

    loss: bool

    def run(self, graph: Graph) -> None:
        use_running_statistics(graph)
        lower(graph, {"dropout": lambda g, node: (node.operands[0],)})
        if not self.loss:
            graph.outputs = {name: value for name, value in graph.outputs.items() if name != LOSS}
        DeadCode().run(graph)
        read = {operand for node in graph.nodes for operand in node.operands}
        read.update(graph.outputs.values())
        graph.inputs = [value for value in graph.inputs if value in read]


def batch_statistics(value: Value) -> list[Value]:
    """Return the batch statistics of which this value is a weighted sum."""
    node = value.node
    if node is None:
        return []
    definition = lookup(node.op)
    if definition.means or definition.view:  # instance norm averages its statistics over samples
        return batch_statistics(node.operands[0])
    if not definition.elementwise or len(definition.linear) < len(node.operands):
        return [value]
    return [part for operand in node.operands for part in batch_statistics(operand)]


def use_running_statistics(graph: Graph) -> None:
    """Replace batch norms by arithmetic with their running statistics, if any; drop updates.

    Reads of a state after its update read the unmodified state.
    """
    updates = [node for node in graph.nodes if lookup(node.op).follows]
    running = {
        value: node.operands[0] for node in updates for value in batch_statistics(node.operands[1])
    }
    _read_states(graph, updates)
    graph.nodes[:] = [node for node in graph.nodes if not lookup(node.op).writes]

    def frozen(g: Builder, node: Node) -> tuple[Value, ...]:
        x, gamma, beta = node.operands
        _, mean, var = node.results
        if mean not in running or var not in running:
            return g.emit("batch_norm", x, gamma, beta, **node.attrs).results
        mean, var = (_repeated(g, running[x], x.shape) for x in (mean, var))
        scale = g.mul(gamma, g.rsqrt(g.add(var, g.scalar(node.attrs["eps"]))))
        shift = g.sub(beta, g.mul(mean, scale))
        return g.add(g.mul(x, scale), shift), mean, var

    lower(graph, {"batch_norm": frozen})


def _repeated(g: Builder, state: Value, shape: Shape) -> Value:
    """Repeat running statistics for each sample of an instance norm."""
    if state.shape == shape:
        return state
    samples = shape[0] // state.shape[0]
    return g.reshape(g.broadcast_to(state, shape=(samples, *state.shape)), shape=shape)


def _read_states(graph: Graph, updates: list[Node]) -> None:
    """Replace a frontend's value for the new content of a state by the state itself."""
    states = {}
    for update in updates:
        renewed = _renewed(update.operands[1])
        if renewed is not None:
            states[renewed] = update.operands[0]
    replace_operands((node for node in graph.nodes if node not in updates), states)
    graph.outputs = {name: states.get(value, value) for name, value in graph.outputs.items()}


def _renewed(value: Value) -> Value | None:
    """Return the no-op reshape that marks an updated state."""
    while value.node is not None and value.node.op == "stop_gradient":
        value = value.node.operands[0]
    node = value.node
    same = node is not None and node.op == "reshape" and node.operands[0].shape == value.shape
    return value if same else None
