"""Store constants of small integers as bytes, which kernels widen on reading.

A rescale has an exponent per channel, which takes 4 bytes as an i32 and is always small.
"""

from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.types import I32
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.base import Pass


@dataclass(frozen=True)
class SmallConstants(Pass):
    """Store as i8 the constants that fusions read as small operands.

    Requires: fused. Leaves: the same numbers, widened by a `cast` within each fusion.
    """

    def run(self, graph: Graph) -> None:
        g = Builder(graph)
        small: dict[Value, Value] = {}
        for node in graph.nodes:
            if node.op != "fusion":
                continue
            wide = _wide(graph, node)
            for value in wide:
                if value not in small:
                    data = graph.constants[value].astype(np.int8)
                    small[value] = g.constant(data, "small")
            if wide:
                _narrow(node, {value: small[value] for value in wide})
        _drop_unread(graph, small)


def _wide(graph: Graph, node: Node) -> list[Value]:
    """Return the tensor constants that a fusion reads only as small operands."""
    body: Graph = node.attrs["body"]
    users, outputs = body.users(), set(body.outputs.values())
    return [
        value
        for value, inner in zip(node.operands, body.inputs, strict=True)
        if value in graph.constants and value.shape and inner not in outputs
        if all(_is_small(inner, reader) for reader in users.get(inner, ()))
        and _fits(graph.constants[value])
    ]


def _fits(data: np.ndarray) -> bool:
    return bool(np.array_equal(data.astype(np.int8), data))


def _is_small(value: Value, reader: Node) -> bool:
    """Whether a node reads a value only as small operands."""
    small = lookup(reader.op).small
    return all(index in small for index, each in enumerate(reader.operands) if each is value)


def _narrow(node: Node, small: dict[Value, Value]) -> None:
    """Make a fusion read constants by their bytes."""
    old: Graph = node.attrs["body"]
    body = Graph(old.name)
    g = Builder(body)
    operands = tuple(small.get(value, value) for value in node.operands)
    known = {
        inner: g.input(inner.name, operand.type)
        for inner, operand in zip(old.inputs, operands, strict=True)
    }
    known |= {value: g.constant(data, "c") for value, data in old.constants.items()}
    for inner, value in zip(old.inputs, node.operands, strict=True):
        if value in small:
            known[inner] = g.cast(known[inner], dtype=I32.value)
    for each in old.nodes:
        copy = g.repeat(each, tuple(known[value] for value in each.operands))
        known.update(zip(each.results, copy.results, strict=True))
    for name, value in old.outputs.items():
        g.output(name, known[value])
    node.operands = operands
    node.attrs = {**node.attrs, "body": body}


def _drop_unread(graph: Graph, small: dict[Value, Value]) -> None:
    """Drop the constants that bytes replace, if they have no other readers."""
    read = {*graph.users(), *graph.outputs.values()}
    for value in small:
        if value not in read:
            del graph.constants[value]
