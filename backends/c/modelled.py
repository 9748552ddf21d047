"""Cycle model of kernels without plans: elementwise work, and kernels with only one form.

Cycles are of the busiest thread, with work split evenly over all cores. They rank kernels and
schemes; they are not measured times.
"""

from pockengine.compiler.ir import Node
from pockengine.compiler.ops import lookup, node_cost
from pockengine.devices.schema import Device


def elementwise_cycles(node: Node, device: Device) -> float:
    """Return the cycles of a kernel's elementwise nodes: one vector of results per cycle."""
    return _elementwise_vectors(node, device) / device.cpu.cores


def plain_cycles(node: Node, device: Device) -> float:
    """Return the cycles of a kernel without a plan.

    Multiply-adds, traffic and elementwise nodes each take a cycle per vector.
    """
    cpu = device.cpu
    traffic = sum(value.type.nbytes for value in (*node.operands, *node.results))
    work = node_cost(node) / _lanes(device) + traffic / cpu.vector_bytes
    return (_elementwise_vectors(node, device) + work) / cpu.cores


def whole_cycles(planned: float, node: Node, device: Device) -> float:
    """Return the cycles of a kernel whose plan takes `planned`; 0 for one without a plan."""
    return planned + elementwise_cycles(node, device) if planned else plain_cycles(node, device)


def _elementwise_vectors(node: Node, device: Device) -> float:
    """Return the number of result vectors of a kernel's elementwise nodes."""
    body = node.attrs["body"].nodes if node.op == "fusion" else [node]
    results = sum(
        value.type.size for inner in body if lookup(inner.op).elementwise for value in inner.results
    )
    return results / _lanes(device)


def _lanes(device: Device) -> int:
    return max(1, device.cpu.vector_bytes // 4)
