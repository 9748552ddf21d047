"""Remove parts of a PyTorch module's trace that no step needs."""

from typing import TYPE_CHECKING

from torch.fx import Node

from pockengine.frontends.torch.blocks import has_effect
from pockengine.frontends.torch.params import COUNTER

if TYPE_CHECKING:
    from torch.export import ExportedProgram

CHECKS = ("aten._assert", "aten.sym_constrain")
"""Names of operators that only check, and return nothing."""


def drop_dead(program: "ExportedProgram") -> None:
    """Drop checks that PyTorch adds, counts of batches, and unused nodes."""
    graph = program.graph
    buffers = program.graph_signature.inputs_to_buffers
    for node in list(graph.nodes):
        if node.op == "placeholder" and buffers.get(node.name, "").endswith(COUNTER):
            for count in reversed(_counts(node) or []):
                count.replace_all_uses_with(count.args[0])
                graph.erase_node(count)
    for node in reversed(list(graph.nodes)):
        if str(node.target).startswith(CHECKS) and not node.users:
            graph.erase_node(node)
    graph.eliminate_dead_code(has_effect)


def _counts(name: Node) -> list[Node] | None:
    """Return what only counts batches in this buffer, in order; None if something reads it."""
    counters: list[Node] = []
    for user in name.users:
        more = _counts(user) if str(user.target) == "aten.add_.Tensor" else None
        if more is None or user.args[0] is not name:
            return None
        counters += [user, *more]
    return counters
