"""Views by strides, in a PyTorch module's trace."""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch.export import ExportedProgram

AS_STRIDED = torch.ops.aten.as_strided.default
PERMUTE = torch.ops.aten.permute.default


def follow_memory(program: "ExportedProgram") -> None:
    """Permute each tensor that is read by strides so that its elements are in memory's order.

    Strides count in memory, and our tensors have no other order than that of their dimensions.
    """
    graph = program.graph
    for node in graph.find_nodes(op="call_function", target=AS_STRIDED):
        source = node.args[0]
        value = source.meta["val"]
        order = sorted(range(value.dim()), key=value.stride().__getitem__, reverse=True)
        permuted = value.permute(order)
        if value.is_contiguous() or not permuted.is_contiguous():
            continue
        with graph.inserting_before(node):
            view = graph.call_function(PERMUTE, (source, order))
        view.meta = {**source.meta, "val": permuted}
        node.replace_input_with(source, view)
