"""Inlining: append a body's nodes to another graph."""

from collections.abc import Sequence

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Value


def inline(g: Builder, body: Graph, operands: Sequence[Value]) -> list[Value]:
    """Append the nodes of `body` with these operands as its inputs; return its outputs in order."""
    known = dict(zip(body.inputs, operands, strict=True))
    known |= {value: g.constant(data, "c") for value, data in body.constants.items()}
    for node in body.nodes:
        copy = g.repeat(node, tuple(known[value] for value in node.operands))
        known.update(zip(node.results, copy.results, strict=True))
    return [known[value] for value in body.outputs.values()]
