"""Modelled cycles of what has no plan: elementwise work, and kernels that are written in one way.

Cycles are of the busiest thread, with the work shared evenly by all cores. They rank kernels and
schemes; they are no measured time.
"""

from pockengine.compiler.ir import Node
from pockengine.compiler.ops import lookup, node_cost
from pockengine.devices.schema import Device


def elementwise_cycles(node: Node, device: Device) -> float:
    """Return the cycles of a kernel's elementwise nodes: a vector of results a cycle."""
    return _elementwise_vectors(node, device) / device.cpu.cores


def plain_cycles(node: Node, device: Device) -> float:
    """Return the cycles of a kernel without a plan.

    Its multiply-adds and its traffic take a cycle a vector, and so do its elementwise nodes.
    """
    cpu = device.cpu
    traffic = sum(value.type.nbytes for value in (*node.operands, *node.results))
    work = node_cost(node) / _lanes(device) + traffic / cpu.vector_bytes
    return (_elementwise_vectors(node, device) + work) / cpu.cores


def whole_cycles(planned: float, node: Node, device: Device) -> float:
    """Return the cycles of a kernel whose plan takes `planned`, 0 where it has none."""
    return planned + elementwise_cycles(node, device) if planned else plain_cycles(node, device)


def _elementwise_vectors(node: Node, device: Device) -> float:
    """Return the vectors of results that the elementwise nodes of a kernel compute."""
    body = node.attrs["body"].nodes if node.op == "fusion" else [node]
    results = sum(
        value.type.size for inner in body if lookup(inner.op).elementwise for value in inner.results
    )
    return results / _lanes(device)


def _lanes(device: Device) -> int:
    return max(1, device.cpu.vector_bytes // 4)
