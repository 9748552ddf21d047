"""What a kernel takes, modelled: scratch bytes, and cycles as the C backend estimates them.

Products and convolutions cost what the backend's planner estimates for the plan that it picks;
anything else its multiply-adds and its traffic, a vector a cycle. Schemes of one model share most
of their kernels, so an estimate is kept by what the kernel computes: op, shapes, attrs, body.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pockengine.backends.c.backend import CBackend
from pockengine.backends.c.options import Candidate, P, cheapest
from pockengine.compiler.ir import Node
from pockengine.compiler.ir.key import Key, node_key
from pockengine.compiler.ops import lookup, node_cost
from pockengine.devices import Device


@dataclass(frozen=True)
class KernelCost:
    """Scratch bytes, cycles of the busiest thread of all cores, and cycles on a single core."""

    scratch_bytes: int
    cycles: float
    work: float


class KernelCosts:
    """Estimates the kernels of one device, each once."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._single = replace(device, cpu=replace(device.cpu, cores=1))
        self._known: dict[Key, KernelCost] = {}

    def of(self, node: Node) -> KernelCost:
        """Return a node's cost; CompileError when the backend has no kernel for it."""
        key = node_key(node)
        if key not in self._known:
            scratch, cycles = _estimate(node, self._device)
            self._known[key] = KernelCost(scratch, cycles, _estimate(node, self._single)[1])
        return self._known[key]

    def scratch_bytes(self, node: Node) -> int:
        """Bytes of the arena that the node's kernel needs while it runs."""
        return self.of(node).scratch_bytes


class _Recorder:
    """A picker of the cheapest plan that keeps its estimate."""

    def __init__(self) -> None:
        self.cycles = 0.0

    def __call__(self, key: str, candidates: Sequence[Candidate[P]]) -> P:
        self.cycles += min(candidate.cycles for candidate in candidates)
        return cheapest(key, candidates)


def _estimate(node: Node, device: Device) -> tuple[int, float]:
    """Return a kernel's scratch bytes and its cycles."""
    recorder = _Recorder()
    kernel = CBackend(device, pick=recorder).kernel(node)
    cpu = device.cpu
    lanes = max(1, cpu.vector_bytes // 4)
    vectors = _results(node) / lanes
    if not recorder.cycles:
        traffic = sum(value.type.nbytes for value in (*node.operands, *node.results))
        vectors += node_cost(node) / lanes + traffic / cpu.vector_bytes
    return kernel.scratch_bytes, recorder.cycles + vectors / cpu.cores


def _results(node: Node) -> int:
    """Elements that the elementwise nodes of a kernel compute."""
    body = node.attrs["body"].nodes if node.op == "fusion" else [node]
    return sum(
        value.type.size for inner in body if lookup(inner.op).elementwise for value in inner.results
    )
