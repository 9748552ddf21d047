"""Inline blocks of a traced module: `with torch.no_grad():`, autocast that is off.

PyTorch traces such a block as a separate graph, which an operator runs. Its nodes move into the
module's graph, so that other code sees one graph.
"""

import operator
from typing import TYPE_CHECKING

import torch
from torch.fx import GraphModule, Node

from pockengine.frontends.torch.nodes import placeholders, results_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram

BLOCKS = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}
"""Operators that run a block of the module, and the place of its graph among their arguments."""

AUTOCAST = "wrap_with_autocast"

UNRECORDED = "unrecorded"
"""Metadata key that marks operators under `torch.no_grad()`."""


def inline_blocks(program: "ExportedProgram") -> None:
    """Inline the nodes of all blocks into the module's graph; enabled autocast stays."""
    root = program.graph_module
    for part in root.modules():
        if isinstance(part, GraphModule):
            _know_users(part)
    while blocks := [node for node in root.graph.nodes if _is_plain_block(node)]:
        for node in blocks:
            _inline(root, node)


def has_effect(node: Node) -> bool:
    """Whether an operator has a side effect, as a rejected block may have."""
    return bool(node.is_impure()) or str(node.target) in BLOCKS


def _know_users(part: GraphModule) -> None:
    """Complete the lists of each node's readers: traces of blocks lose some."""
    for node in part.graph.nodes:
        for source in node.all_input_nodes:
            source.users.setdefault(node)


def _is_plain_block(node: Node) -> bool:
    name = str(node.target)
    return name in BLOCKS and not (name == AUTOCAST and node.args[2])


def _inline(root: GraphModule, node: Node) -> None:
    """Copy the nodes of one block to its place."""
    place = BLOCKS[str(node.target)]
    reference, *arguments = node.args[place:]
    body = root.get_submodule(str(reference.target))
    unrecorded = str(node.target) != AUTOCAST and not node.args[0]
    known = dict(zip(placeholders(body.graph.nodes), arguments, strict=True))
    with root.graph.inserting_before(node):
        for inner in body.graph.nodes:
            if inner.op in ("placeholder", "output"):
                continue
            copy = root.graph.node_copy(inner, known.__getitem__)
            if inner.op == "get_attr":
                copy.target = f"{reference.target}.{inner.target}"
            if unrecorded:
                copy.meta[UNRECORDED] = True
            known[inner] = copy
    results = torch.fx.map_arg(results_of(body), known.__getitem__)
    for user in list(node.users):
        assert user.target is operator.getitem
        user.replace_all_uses_with(results[user.args[1]])
        root.graph.erase_node(user)
    for unused in (node, reference):
        if not unused.users:
            root.graph.erase_node(unused)
