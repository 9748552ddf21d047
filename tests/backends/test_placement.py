"""Trained params are at multiples of the target's alignment, frozen ones as in the file."""

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from pockengine.backends.placement import FROZEN, PARAMS, lay_out
from pockengine.backends.weights import write_weights
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Param, Value
from pockengine.compiler.ir.contents import InMemory
from pockengine.compiler.ir.graph import Space
from pockengine.compiler.program import Program
from pockengine.compiler.target import ALIGNMENT, Target
from pockengine.tests.compiler.small_nets import residual_net

ODD = {
    "mask": np.array([True, False, True]),
    "weight": np.arange(64, dtype=np.float32),
    "trained": np.arange(5, dtype=np.float32),
    "bias": np.arange(3, dtype=np.float32) - 1,
    "places": np.array([7], np.int64),
    "large_mask": np.arange(128) % 3 == 0,
}
"""All params but one are frozen; some of them fill whole cache lines."""


def program_of(alignment: int) -> Program:
    return compile_program(residual_net(), target=Target(alignment=alignment))


@pytest.mark.parametrize("alignment", [16, 256])
def test_params_lie_at_multiples_of_the_targets_alignment(alignment: int) -> None:
    layout = lay_out(program_of(alignment))
    written = [slot.place for slot in layout.slots if slot.place.memory == PARAMS]
    assert {place.offset % alignment for place in written} == {0}
    assert layout.params_bytes % alignment == 0
    whole = lay_out(program_of(ALIGNMENT)).params_bytes
    assert (layout.params_bytes < whole) == (alignment < ALIGNMENT)


def odd_program() -> Program:
    params = {
        name: Param(
            Value(name, InMemory(data).type),
            InMemory(data),
            space=Space.MUTABLE if name == "trained" else Space.CONSTANT,
        )
        for name, data in ODD.items()
    }
    return Program("odd", {}, params)


def test_the_memory_of_frozen_params_is_the_files_data(tmp_path: Path) -> None:
    layout, path = lay_out(odd_program()), tmp_path / "weights"
    write_weights(layout.in_file, path)
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    assert start % ALIGNMENT == 0
    memory = content[start : start + layout.frozen_bytes]
    for slot in (slot for slot in layout.slots if slot.place.memory == FROZEN):
        data = ODD[slot.name]
        end = slot.place.offset + data.nbytes
        assert memory[slot.place.offset : end] == data.tobytes()
        assert slot.place.offset % (ALIGNMENT if data.nbytes >= ALIGNMENT else data.itemsize) == 0
    with safe_open(path, "np") as file:
        assert all(np.array_equal(file.get_tensor(name), data) for name, data in ODD.items())
