"""Buffers written in training: spectral norm's vectors, running averages."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from pockengine.compiler.ir import Builder, Value
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain
from pockengine.frontends.torch.decisions import copied_module

if TYPE_CHECKING:
    from torch.export import ExportedProgram

STATE_WRITE = (
    "it changes a parameter, or a tensor that is no persistent buffer, in place; "
    "let the module hold what it keeps by register_buffer"
)

RENORM = (
    "max_norm scales rows of the table in place; drop it, and scale the rows that are looked up"
)

OVERWRITES = ("aten.copy_.default", "aten.fill_.Scalar", "aten.zero_.default")


def is_scratch(name: Node) -> bool:
    """Whether a tensor is fully written before it is read, so that it does not persist between
    steps."""
    first = next((node for node in name.graph.nodes if name in node.all_input_nodes), None)
    if first is None or str(first.target) not in OVERWRITES:
        return False
    return first.args[0] is name and name not in first.args[1:]


def renewed(g: Builder, value: Tensor) -> Tensor:
    """Return a buffer's new value as a separate node.

    `use_running_statistics` knows by the node what reads the buffer.
    """
    return plain(g.reshape(framework_order(g, value), shape=value.shape))


def keep(g: Builder, state: Value, value: Tensor) -> None:
    """Write a buffer's new value at the end of a step."""
    g.emit("assign", state, framework_order(g, value))


def check_assigned(program: "ExportedProgram") -> None:
    """Raise Unsupported if forward reads what it assigned to a buffer's name.

    PyTorch copies that into the buffer at the end; evaluation would need to know the reads that
    mean the buffer.
    """
    buffers = program.graph_signature.inputs_to_buffers
    *nodes, _ = program.graph.nodes
    for node in reversed(nodes):
        if str(node.target) != "aten.copy_.default" or node.args[0].name not in buffers:
            return
        if len(node.args[1].users) > 1:
            name = buffers[node.args[0].name]
            raise Unsupported(
                f"it assigns to buffer {name!r} and reads what it assigned; write in place, by "
                f"self.{name.rpartition('.')[2]}.copy_(...), and read the buffer"
            )


def check_evaluation(
    module: torch.nn.Module, args: Sequence[Any], kwargs: dict[str, Any], names: Sequence[str]
) -> None:
    """Raise Unsupported if the module changes one of these buffers in evaluation mode too."""
    copied = copied_module(module).eval()
    before = {name: copied.get_buffer(name).clone() for name in names}
    with torch.no_grad(), torch.random.fork_rng():
        copied(*args, **kwargs)
    for name, buffer in before.items():
        if not torch.equal(copied.get_buffer(name), buffer):
            raise Unsupported(
                f"it changes buffer {name!r} in evaluation mode too, and a compiled evaluation "
                "keeps nothing; write it under `if self.training:`"
            )
