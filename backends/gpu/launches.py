"""The launches of a program as C tables, from which the runtime calls a driver."""

from collections.abc import Callable

import numpy as np

from pockengine.backends.gpu.kernel import GpuKernel
from pockengine.backends.native.interface import identifier
from pockengine.backends.native.limits import static_assertion
from pockengine.backends.native.program import (
    c_string,
    checked_layout,
    comment,
    files_around,
    program_tables,
)
from pockengine.backends.placement import ARENA, FROZEN, PARAMS, Layout, kernel_nodes, place_of
from pockengine.compiler.ir import Node, Value
from pockengine.compiler.ops.registry import written_operands
from pockengine.compiler.program import Entry, Program
from pockengine.devices.schema import Device
from pockengine.errors import CompileError

MEMORIES = {ARENA: "PE_GPU_ARENA", PARAMS: "PE_GPU_PARAMS", FROZEN: "PE_GPU_FROZEN"}
NUMBER_BYTES = 16
"""Alignment of the program's inline numbers: that of any element."""

MOST_POINTERS = 64
"""PE_GPU_POINTERS of pe_gpu.h."""

Kernels = Callable[[Node], GpuKernel]

_HEAD = """#include "{runtime}.h"

#ifdef PE_PROFILE
#define PE_KERNELS {launches}
#include "pe_profile.h"
#define REPORT pe_profile_report
#define TIMED pe_profile_keep
#else
#define REPORT NULL
#define TIMED NULL
#endif
"""

_TAIL = """static const pe_gpu_code code = {{
    .image = &{image},
    .numbers = numbers,
    .numbers_bytes = {numbers_bytes},
    .places = places,
    .launches = launches,
    .steps = steps,
    .launch_count = {launches},
    .timed = TIMED,
}};

static const pe_accelerator accelerator = {{
    {runtime}_open, {runtime}_close, {runtime}_run, {runtime}_fetch, &code,
}};
"""


def image_symbol(program: Program) -> str:
    """Return the C symbol of a program's compiled kernels."""
    return f"pe_image_{identifier(program.name)}"


def launching_program(
    program: Program, kernels: Kernels, device: Device, runtime: str
) -> dict[str, str]:
    """Return the C files of a launching program, without the kernels.

    `runtime` is the prefix of the C functions that launch them: `pe_cuda`.
    """
    layout = checked_layout(program, device)
    tables = _Tables(layout, kernels)
    for entry in program.entries.values():
        tables.add(entry)
    text = [
        comment(f"Program {program.name}. Generated: change the model, not this file."),
        _HEAD.format(runtime=runtime, launches=max(1, tables.launches)),
        static_assertion(program, layout),
        f"extern const pe_gpu_image {image_symbol(program)};\n",
        tables.text(image_symbol(program), runtime),
        program_tables(program, layout, device, "accelerator"),
    ]
    return {"program.c": "\n".join(text), **files_around(program, device)}


class _Tables:
    """Tables of places, launches and steps, and inline numbers, filled entry by entry."""

    def __init__(self, layout: Layout, kernels: Kernels) -> None:
        self._slots, self._kernels = layout.places, kernels
        self._places: list[str] = []
        self._launches: list[str] = []
        self._steps: list[str] = []
        self._numbers = b""

    def add(self, entry: Entry) -> None:
        """Add the launches of an entry."""
        first, writes = len(self._launches), False
        for node in kernel_nodes(entry):
            self._add_node(node, entry)
            written = (node.operands[index] for index in written_operands(node))
            writes |= any(self._is_param(value, entry) for value in written)
        count = len(self._launches) - first
        self._steps.append(f"{{{first}, {count}, {'true' if writes else 'false'}}},")

    @property
    def launches(self) -> int:
        """Number of launches of all entries."""
        return len(self._launches)

    def text(self, image: str, runtime: str) -> str:
        """Return the tables and their declarations; C has no empty arrays."""
        numbers = ", ".join(map(str, self._numbers or b"\0"))
        tail = _TAIL.format(
            image=image,
            runtime=runtime,
            numbers_bytes=len(self._numbers),
            launches=self.launches,
        )
        return "\n".join(
            [
                f"static const unsigned char numbers[] = {{{numbers}}};\n",
                _table("pe_gpu_place", "places", self._places or ["{PE_GPU_ARENA, 0},"]),
                _table("pe_gpu_launch", "launches", self._launches or ['{"", 0, 0, 0, 0},']),
                _table("pe_gpu_step", "steps", self._steps),
                tail,
            ]
        )

    def _add_node(self, node: Node, entry: Entry) -> None:
        kernel = self._kernels(node)
        values = (*node.operands, *node.results)
        places = [self._place(value, entry) for value in values]
        if kernel.scratch_bytes:
            places.append(f"{{PE_GPU_ARENA, {entry.plan.scratch[node].offset}}},")
        if len(places) > MOST_POINTERS:
            raise CompileError(
                f"{node} takes {len(places)} pointers, and a launch has {MOST_POINTERS}; split it"
            )
        for launch in kernel.launches:
            row = f"{launch.groups}, {launch.items}, {len(self._places)}, {len(places)}"
            self._launches.append(f"{{{c_string(launch.function)}, {row}}},")
        self._places += places

    def _is_param(self, value: Value, entry: Entry) -> bool:
        place = place_of(value, entry, self._slots)
        return not isinstance(place, np.ndarray) and place.memory == PARAMS

    def _place(self, value: Value, entry: Entry) -> str:
        place = place_of(value, entry, self._slots)
        if not isinstance(place, np.ndarray):
            return f"{{{MEMORIES[place.memory]}, {place.offset}}},"
        data = place.tobytes().ljust(NUMBER_BYTES, b"\0")
        at = self._numbers.find(data)
        while at > 0 and at % NUMBER_BYTES:
            at = self._numbers.find(data, at + 1)
        if at < 0:
            at, self._numbers = len(self._numbers), self._numbers + data
        return f"{{PE_GPU_NUMBERS, {at}}},"


def _table(kind: str, name: str, rows: list[str]) -> str:
    body = "\n".join(f"    {row}" for row in rows)
    return f"static const {kind} {name}[] = {{\n{body}\n}};\n"
