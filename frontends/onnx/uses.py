"""Uses of initializers by operators: whether they become params, and their best layout."""

from collections.abc import Sequence
from dataclasses import dataclass

from onnx import GraphProto, NodeProto

from pockengine.frontends.layout import Layout
from pockengine.frontends.onnx.control import bodies, nested
from pockengine.frontends.onnx.ops import OnnxRule, find_rule


@dataclass(frozen=True)
class Use:
    """How one operator reads an initializer."""

    as_tensor: bool
    is_state: bool
    wish: Layout | None


def uses_of(graph: GraphProto, nodes: Sequence[NodeProto]) -> dict[str, list[Use]]:
    """Return who reads each name, and how."""
    inner = [body.initializer for node in nested(nodes) for body in bodies(node)]
    ranks = {
        tensor.name: len(tensor.dims)
        for tensors in (graph.initializer, *inner)
        for tensor in tensors
    }
    for node in nested(nodes):
        if node.op_type == "Constant":
            ranks[node.output[0]] = len(node.attribute[0].t.dims)
    uses: dict[str, list[Use]] = {}
    for node in nested(nodes):
        rule = find_rule(node.domain, node.op_type)
        for index, name in enumerate(node.input):
            if name in ranks:
                uses.setdefault(name, []).append(_use(node, rule, index, ranks[name]))
    for output in graph.output:
        if output.name in ranks:
            uses.setdefault(output.name, []).append(Use(True, False, None))
    return uses


def _use(node: NodeProto, rule: OnnxRule | None, index: int, rank: int) -> Use:
    if rule is None:
        return Use(True, False, None)
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    wish = rule.wish(rank, attributes) if index == 1 else None
    if wish is not None and len(wish) != rank:
        wish = None
    return Use(index not in rule.static, index in rule.states, wish)
