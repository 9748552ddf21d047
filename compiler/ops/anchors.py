"""Anchors: the ops that kernels are built around."""

from collections.abc import Iterable

from pockengine.compiler.ir.graph import Node
from pockengine.compiler.ops.registry import lookup


def anchors_of(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that are not elementwise, without those that decode another's operand."""
    kept = [node for node in nodes if not lookup(node.op).elementwise]
    return [node for node in kept if not lookup(node.op).decodes] or kept
