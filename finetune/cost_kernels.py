"""Modelled cost of a kernel: scratch bytes, and cycles of the backend's choice.

A backend chooses without generating code, and equally for equal nodes, so schemes of one model
share most of the work.
"""

from dataclasses import dataclass, replace

from pockengine.backends.registry import backend_for
from pockengine.compiler.ir import Node
from pockengine.compiler.target import Target
from pockengine.devices import Device


@dataclass(frozen=True)
class KernelCost:
    """Scratch bytes, cycles of the busiest thread of all cores, and cycles on a single core."""

    scratch_bytes: int
    cycles: float
    work: float


class KernelCosts:
    """Costs of kernels on one device."""

    def __init__(self, device: Device) -> None:
        self._backend = self._single = backend_for(device)
        if device.processor is not None:
            core = replace(device.processor, cores=1)
            self._single = backend_for(replace(device, processor=core))

    def of(self, node: Node) -> KernelCost:
        """Return a node's cost; CompileError if the backend has no kernel for it."""
        choice = self._backend.choose(node)
        return KernelCost(choice.scratch_bytes, choice.cycles, self._single.choose(node).cycles)

    def target(self) -> Target:
        """Return the backend's target."""
        return self._backend.target()
