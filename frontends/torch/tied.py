"""Buffers of several names: those of a norm that a module holds twice."""

from typing import TYPE_CHECKING

from pockengine.frontends.torch.params import first_names

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram


def join_tied(program: "ExportedProgram", module: "nn.Module") -> None:
    """Leave one placeholder of each buffer, that of its first name.

    A trace has one for each name, and reads and writes the last.
    """
    signature = program.graph_signature
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    by_name = {target: nodes[name] for name, target in signature.inputs_to_buffers.items()}
    first = first_names(module)
    for name, node in by_name.items():
        owner = by_name.get(first.get(name, name), node)
        if owner is not node:
            node.replace_all_uses_with(owner)
            program.graph.erase_node(node)
            signature.input_specs[:] = [
                spec for spec in signature.input_specs if spec.arg.name != node.name
            ]
