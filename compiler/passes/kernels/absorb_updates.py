"""Fuse updates into the kernels of their gradients, which are then never materialized.

A weight's gradient that only its optimizer reads is a product whose epilogue can be the update:
each sum is applied to the weight and the optimizer's states while it is in a register.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.inline import inline
from pockengine.compiler.ir.writes import storage, written_values
from pockengine.compiler.ops.registry import lookup, written_operands
from pockengine.compiler.optim.formulas import FORMULAS
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.kernels.fuse import MOST_OPERANDS
from pockengine.compiler.target import FusionRules, Target

GRADIENT = 1
"""Position of an update's gradient among its operands."""


@dataclass(frozen=True)
class AbsorbUpdates(Pass):
    """Fuse each update with the product that makes its gradient, if it is the only reader.

    Requires: the final order. Leaves: all other nodes in place.
    """

    target: Target

    def run(self, graph: Graph) -> None:
        rules, users = self.target.fusion, graph.users()
        outputs = set(graph.outputs.values())

        def alone(gradient: Value) -> bool:
            return len(users[gradient]) == 1 and gradient not in outputs

        order: list[Node] = []
        places: dict[Node, int] = {}
        for node in graph.nodes:
            maker = _maker(order, node)
            if maker is None or not _fits(maker, node, rules) or not alone(maker.result):
                places[node] = len(order)
                order.append(node)
            else:
                order[places[maker]] = _absorb(graph, maker, node)
        graph.nodes[:] = order


def _maker(order: list[Node], update: Node) -> Node | None:
    """The node that makes an update's gradient, if the update may move there.

    Only other updates may be between the two, and none that reads what this one writes: an update
    absorbed earlier reads everything its product reads.
    """
    if update.op not in FORMULAS or len(update.operands) <= GRADIENT:
        return None
    maker, written = update.operands[GRADIENT].node, set(written_values(update))
    for node in reversed(order):
        if node is maker:
            return node
        if node.results or not written_operands(node) or _reads(node, written):
            return None
    return None


def _reads(node: Node, params: Set[Value]) -> bool:
    """Whether a node reads one of these params, directly or through a view."""
    return any(storage(operand) in params for operand in node.operands)


def _fits(maker: Node, update: Node, rules: FusionRules) -> bool:
    """Whether one kernel can do both: one anchor, one destination per sum, few pointers."""
    anchors = [node.op for node in _nodes(maker) if not lookup(node.op).elementwise]
    grad = update.operands[GRADIENT]
    others = [value for value in update.operands if value is not grad]
    return (
        len(anchors) == len(maker.results) == 1
        and anchors[0] in rules.update
        and update.attrs.get("axis") is None
        and all(value.shape in (grad.shape, grad.shape[-1:], ()) for value in others)
        and not _reads(maker, set(written_values(update)))
        and len({*maker.operands, *others}) <= MOST_OPERANDS
    )


def _nodes(maker: Node) -> list[Node]:
    return list(maker.attrs["body"].nodes) if maker.op == "fusion" else [maker]


def _absorb(graph: Graph, maker: Node, update: Node) -> Node:
    """Build the fusion of a gradient and its update."""
    grad = update.operands[GRADIENT]
    written = written_values(update)
    body = Graph(maker.attrs["body"].name if maker.op == "fusion" else maker.op)
    g = Builder(body)
    inner: dict[Value, Value] = {}
    outer = dict.fromkeys(
        value for value in (*maker.operands, *update.operands) if value is not grad
    )
    for value in outer:
        data = graph.constants.get(value)
        if data is not None and data.ndim == 0:
            inner[value] = g.constant(data, "c")
        else:
            inner[value] = g.input(value.name, value.type)
    inner[grad] = _replay(g, maker, inner)
    current = [inner[value] for value in update.operands]
    for value, new in zip(written, FORMULAS[update.op](g, update, current), strict=True):
        g.output(value.name, new)
    operands = tuple(value for value in outer if inner[value] not in body.constants)
    writes = tuple(operands.index(value) for value in written)
    return Node("fusion", operands, (), attrs={"body": body, "writes": writes}, scope=maker.scope)


def _replay(g: Builder, maker: Node, inner: Mapping[Value, Value]) -> Value:
    """Emit the gradient's nodes into the new body; return the gradient there."""
    if maker.op != "fusion":
        return g.repeat(maker, tuple(inner[value] for value in maker.operands)).result
    (gradient,) = inline(g, maker.attrs["body"], [inner[value] for value in maker.operands])
    return gradient
