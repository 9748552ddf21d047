"""An entry of a planned program on an OpenCL device: its kernels, launched in order, each step.

The arena is one buffer, of which each value is a part; params have a buffer each. Arguments are
set once. Entries share nothing: a session, with checkpoints and all entries, is not written.
"""

from collections.abc import Callable, Mapping

import numpy as np

from pockengine.backends.gpu.kernel import GpuKernel, Launch
from pockengine.backends.gpu.opencl import Handle, OpenCl
from pockengine.backends.gpu.source import OPENCL, source_of
from pockengine.backends.placement import ARENA, kernel_nodes, lay_out, place_of
from pockengine.compiler.ir import Node, Value
from pockengine.compiler.program import Program

Kernels = Callable[[Node], GpuKernel]
"""Gives the kernel of a node."""


class OpenClStep:
    """One entry of a program, ready to be run."""

    def __init__(self, device: OpenCl, program: Program, entry: str, kernels: Kernels) -> None:
        self._device, self._entry = device, program.entries[entry]
        self._arena = device.buffer(program.arena_bytes)
        self._parts: dict[tuple[int, int], Handle] = {}
        layout = lay_out(program)
        self._places = layout.places
        self._params: dict[str, Handle] = {}
        for slot in layout.slots:
            self._params[slot.name] = device.buffer(slot.type.nbytes)
            device.write(self._params[slot.name], slot.contents.read())
        self._types = {slot.name: slot.type for slot in layout.slots}
        nodes = kernel_nodes(self._entry)
        chosen = {node: kernels(node) for node in nodes}
        built = device.build(source_of(chosen.values(), OPENCL))
        self._launches: list[tuple[Handle, Launch]] = []
        for node in nodes:
            arguments = self._arguments(node, chosen[node])
            for launch in chosen[node].launches:
                self._launches.append((device.kernel(built, launch, arguments), launch))

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Write the inputs, launch every kernel, and read the outputs."""
        graph = self._entry.graph
        for value in graph.inputs:
            data = np.asarray(inputs[value.name], value.dtype.numpy)
            self._device.write(self._of(value), data)
        for kernel, launch in self._launches:
            self._device.launch(kernel, launch)
        results = {
            name: np.empty(value.shape, value.dtype.numpy) for name, value in graph.outputs.items()
        }
        for name, value in graph.outputs.items():
            self._device.read(self._of(value), results[name])
        return results

    def param(self, name: str) -> np.ndarray:
        """Read a param or a state."""
        type_ = self._types[name]
        data = np.empty(type_.shape, type_.dtype.numpy)
        self._device.read(self._params[name], data)
        return data

    def _arguments(self, node: Node, kernel: GpuKernel) -> list[Handle]:
        arguments = [self._of(value) for value in (*node.operands, *node.results)]
        if kernel.scratch_bytes:
            scratch = self._entry.plan.scratch[node]
            arguments.append(self._part(scratch.offset, scratch.size))
        return arguments

    def _of(self, value: Value) -> Handle:
        """Return the buffer of a value; a scalar constant gets one of its own."""
        place = place_of(value, self._entry, self._places)
        if isinstance(place, np.ndarray):
            buffer = self._device.buffer(place.nbytes)
            self._device.write(buffer, place)
            return buffer
        if place.memory == ARENA:
            return self._part(place.offset, value.type.nbytes)
        named = self._entry.plan.aliases.get(value, value)
        return self._params[named.name]

    def _part(self, offset: int, nbytes: int) -> Handle:
        """Return a part of the arena: the same for what lies at the same place."""
        key = offset, nbytes
        if key not in self._parts:
            self._parts[key] = self._device.part(self._arena, offset, nbytes)
        return self._parts[key]
