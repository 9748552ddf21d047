"""Rows that a mask marks, where a model takes one of each example: `x[mask].view(n, -1, m)[:, i]`.

The number of marked rows depends on the data, but the shape of one row per example does not. Models
read their sentence so at the last mark of its end. An internal operator replaces the three;
examples with unequal numbers of marks make its result NaN, as PyTorch's view would mix them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node

if TYPE_CHECKING:
    from torch.export import ExportedProgram

LIBRARY = torch.library.Library("pockengine", "FRAGMENT")
LIBRARY.define("marked(Tensor x, Tensor mask, int number) -> Tensor")
MARKED = torch.ops.pockengine.marked.default
VIEWS = ("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default")


def pick_marked(program: "ExportedProgram") -> None:
    """Replace the selection of rows with an internal operator."""
    for part in program.graph_module.modules():
        if isinstance(part, torch.fx.GraphModule):
            for node in list(part.graph.nodes):
                if str(node.target) == "aten.index.Tensor":
                    _pick(part.graph, node)


def _pick(graph: Graph, index: Node) -> None:
    """Replace this mask's selections that have a supported form."""
    x, indices = index.args
    mask = indices[0]
    if len(indices) != 1 or not _is_mask(mask):
        return
    view = _only_reader(index)
    pick = None if view is None else _only_reader(view)
    if view is None or pick is None or str(view.target) not in VIEWS or view.args[0] is not index:
        return
    marks, rows = mask.meta["val"].shape, view.meta["val"].shape
    grouped = (marks[0], *x.meta["val"].shape[len(marks) :])
    if not _are_sizes((*rows[:1], *rows[2:]), grouped):
        return
    if str(pick.target) != "aten.select.int" or pick.args[1] != 1 or type(pick.args[2]) is not int:
        return
    with graph.inserting_before(pick):
        marked = graph.call_function(MARKED, (x, mask, pick.args[2]))
    value = pick.meta["val"]
    with value.fake_mode:
        marked.meta = {**pick.meta, "val": torch.empty(value.shape, dtype=value.dtype)}
    pick.replace_all_uses_with(marked)
    for node in (pick, view):
        graph.erase_node(node)


def _is_mask(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return isinstance(value, torch.Tensor) and value.dtype is torch.bool and value.dim() > 1


def _are_sizes(sizes: Sequence[Any], expected: Sequence[int]) -> bool:
    """Whether these sizes are known and have these values."""
    return all(isinstance(size, int) for size in sizes) and tuple(sizes) == tuple(expected)


def _only_reader(node: Node) -> Node | None:
    """Return the only operator that reads a value, apart from those that read its size."""
    readers = [user for user in node.users if not str(user.target).startswith("aten.sym_size")]
    return readers[0] if len(readers) == 1 else None
