"""Derive scales that are a multiple of a weight's scales, so that flash stores those once.

The scale of a bias is that of its weight times its input's; both have one number per channel.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.types import F32
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.base import Pass

Factors = Mapping[Value, tuple[Value, np.float32]]
"""Derived constants: each constant's source and the factor of the source."""

NEIGHBORS = 2
"""Number of floats on either side of a quotient to try as its factor."""


@dataclass(frozen=True)
class DeriveScales(Pass):
    """Replace a constant that equals a weight's scales times a number by that product, in its
    readers.

    Requires: fused. Leaves unchanged: constants with other than elementwise readers, or that no
    scales reproduce bit for bit.
    """

    def run(self, graph: Graph) -> None:
        factors = _factors(graph)
        for node in graph.nodes:
            own = {value: factors[value] for value in node.operands if value in factors}
            if own:
                _multiply(node, own)
        read = {*graph.users(), *graph.outputs.values()}
        for value in [*factors, *(scales for scales, _ in factors.values())]:
            if value not in read:
                graph.constants.pop(value, None)


def _factors(graph: Graph) -> dict[Value, tuple[Value, np.float32]]:
    """Return source and factor of each constant that is such a product."""
    g, users, made, found = Builder(graph), graph.users(), dict[bytes, Value](), {}
    weight_scales = {
        np.asarray(param.quantization.scales, np.float32).tobytes()
        for param in graph.params.values()
        if param.quantization is not None
    }
    for value, data in list(graph.constants.items()):
        if value.dtype is not F32 or data.ndim != 1 or data.tobytes() in weight_scales:
            continue
        if not all(_takes(node, value) for node in users.get(value, ())):
            continue
        for key in sorted(weight_scales):
            scales = np.frombuffer(key, np.float32)
            factor = _factor(scales, data)
            if factor is not None:
                made[key] = made[key] if key in made else g.constant(scales, "scales")
                found[value] = made[key], factor
                break
    return found


def _factor(scales: np.ndarray, data: np.ndarray) -> np.float32 | None:
    """Return the factor with which the scales give these numbers bit for bit, if there is one."""
    if scales.shape != data.shape or data.size < 2 or not np.all(scales > 0):
        return None
    factor = np.float32(data[0] / scales[0])
    for _ in range(NEIGHBORS):
        factor = np.nextafter(factor, np.float32(0))
    for _ in range(2 * NEIGHBORS + 1):
        if np.array_equal(scales * factor, data):
            return factor
        factor = np.nextafter(factor, np.float32(np.inf))
    return None


def _takes(node: Node, value: Value) -> bool:
    """Whether all readers of a value are elementwise, alone or in a fusion."""
    if node.op != "fusion":
        return lookup(node.op).elementwise
    body: Graph = node.attrs["body"]
    inner = dict(zip(node.operands, body.inputs, strict=True))[value]
    readers = [each for each in body.nodes if inner in each.operands]
    return all(lookup(each.op).elementwise for each in readers) and (
        inner not in body.outputs.values()
    )


def _multiply(node: Node, factors: Factors) -> None:
    """Turn a node into a fusion that computes these operands first."""
    old = node.attrs["body"] if node.op == "fusion" else _alone(node)
    sources = node.operands if node.op == "fusion" else tuple(dict.fromkeys(node.operands))
    body = Graph(old.name)
    g = Builder(body)
    operands = [factors[value][0] if value in factors else value for value in sources]
    known = {}
    for inner, operand in zip(old.inputs, operands, strict=True):
        known[inner] = g.input(inner.name, operand.type)
    known |= {value: g.constant(data, "c") for value, data in old.constants.items()}
    for inner, value in zip(old.inputs, sources, strict=True):
        if value in factors:
            known[inner] = g.mul(known[inner], g.scalar(float(factors[value][1])))
    for each in old.nodes:
        copy = g.repeat(each, tuple(known[value] for value in each.operands))
        known.update(zip(each.results, copy.results, strict=True))
    for name, value in old.outputs.items():
        g.output(name, known[value])
    writes = node.attrs.get("writes", ())
    node.op, node.operands = "fusion", tuple(operands)
    node.attrs = {"body": body, "writes": writes}


def _alone(node: Node) -> Graph:
    """Return a node as the body of a fusion."""
    body = Graph(node.op)
    g = Builder(body)
    known = {value: g.input(value.name, value.type) for value in dict.fromkeys(node.operands)}
    copy = g.repeat(node, tuple(known[value] for value in node.operands))
    for result, own in zip(node.results, copy.results, strict=True):
        g.output(result.name, own)
    return body
