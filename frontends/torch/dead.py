"""What a trace of a PyTorch module has that no step needs."""

from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from pockengine.frontends.torch.nodes import BLOCKS
from pockengine.frontends.torch.params import COUNTER

if TYPE_CHECKING:
    from torch.export import ExportedProgram

CHECKS = ("aten._assert", "aten.sym_constrain")
"""How operators are called that only check; they give nothing."""


def drop_dead(program: "ExportedProgram") -> None:
    """Drop checks that PyTorch adds, counts of batches, and whatever nothing reads."""
    root = program.graph_module
    buffers = program.graph_signature.inputs_to_buffers
    counters = {name for name, buffer in buffers.items() if buffer.endswith(COUNTER)}
    for node in list(root.graph.nodes):
        if node.op == "placeholder" and node.name in buffers:
            counts = _counts(root, node) if node.name in counters else None
            for count in reversed(counts or []):
                count.replace_all_uses_with(count.args[0])
                count.graph.erase_node(count)
            _drop_argument(root, node)
    for part in root.modules():
        if isinstance(part, torch.fx.GraphModule):
            _know_users(part)
            for node in reversed(list(part.graph.nodes)):
                if str(node.target).startswith(CHECKS) and not node.users:
                    node.graph.erase_node(node)
            part.graph.eliminate_dead_code(writes)


def _know_users(part: torch.fx.GraphModule) -> None:
    """Complete the lists of what reads each node: traces of blocks lose some."""
    for node in part.graph.nodes:
        for source in node.all_input_nodes:
            source.users.setdefault(node)


def _counts(root: torch.fx.GraphModule, name: Node) -> list[Node] | None:
    """Return what only counts batches in this buffer, in order; None where something reads it."""
    counters: list[Node] = []
    for user in name.users:
        body = _body(root, user)
        if body is not None:
            inner = [node for node in body.graph.nodes if node.op == "placeholder"]
            places = [inner[i] for i, x in enumerate(_arguments(user)) if x is name]
        elif str(user.target) == "aten.add_.Tensor" and user.args[0] is name:
            counters.append(user)
            places = [user]
        else:
            return None
        for place in places:
            more = _counts(root, place)
            if more is None:
                return None
            counters.extend(more)
    return counters


def _drop_argument(root: torch.fx.GraphModule, name: Node) -> None:
    """Do not pass this name to blocks that do not read it."""
    for user in list(name.users):
        body = _body(root, user)
        if body is not None:
            inner = [node for node in body.graph.nodes if node.op == "placeholder"]
            given = _arguments(user)
            unread = {i for i, x in enumerate(given) if x is name and not inner[i].users}
            for index in unread:
                body.graph.erase_node(inner[index])
            kept = [x for i, x in enumerate(given) if i not in unread]
            user.args = (*user.args[: len(user.args) - len(given)], *kept)


def _arguments(node: Node) -> tuple[Any, ...]:
    """Return what is passed to a block."""
    return node.args[BLOCKS[str(node.target)] + 1 :]


def _body(root: torch.fx.GraphModule, node: Node) -> torch.fx.GraphModule | None:
    """Return the graph of a `with torch.no_grad():` block, or another."""
    place = BLOCKS.get(str(node.target))
    if place is None:
        return None
    body = root.get_submodule(str(node.args[place].target))
    return body if isinstance(body, torch.fx.GraphModule) else None


def writes(node: torch.fx.Node) -> bool:
    """Whether an operator, or one in the block that this node runs, writes in place."""
    bodies = [
        getattr(node.graph.owning_module, str(source.target))
        for source in node.all_input_nodes
        if source.op == "get_attr" and node.op == "call_function"
    ]
    inner = (
        part
        for body in bodies
        if isinstance(body, torch.fx.GraphModule)
        for part in body.graph.nodes
    )
    return node.is_impure() or any(writes(part) for part in inner if part.op == "call_function")
