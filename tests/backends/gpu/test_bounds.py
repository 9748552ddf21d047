"""Kernels under the address sanitizer: none accesses memory out of bounds, and a faulty one is
found."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pockengine.backends.gpu.backend import GpuBackend
from pockengine.backends.placement import kernel_nodes
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import I64, TensorType
from pockengine.compiler.options import Training
from pockengine.devices import load_device
from pockengine.tests.backends.gpu.cases import KINDS, NN, ROWS, STORED, attention_cases, floats
from pockengine.tests.backends.gpu.sanitized import (
    BOUNDS,
    ONE_DRAW,
    Sanitized,
    Watched,
    draw_operands,
    planted,
    watch,
    watch_case,
    watch_every_op,
)
from pockengine.tests.backends.trainings import TRAININGS
from pockengine.tests.compiler.every_op import graph_of
from pockengine.tests.compiler.op_case import OpCase

BACKEND = GpuBackend(load_device("host"))
TENSOR_CORES = GpuBackend(load_device("host"), bf16=True)
SHORT = [
    OpCase("matmul", (floats(65, 70), floats(70, 130)), NN),
    OpCase("matmul", (floats(5, 777), floats(777, 20)), NN),
    OpCase("reduce_sum", (floats(40, 70),), {"axes": (0,)}),
    ROWS[-1],
    *attention_cases(2, 1, 66, 17)[:2],
]
"""Cases that read all of their operands and write all of their results."""

BESIDE = [
    "PE_SHARED(float, s, 40); PE_SHARED(float, t, 64); t[pe_item()] = 0.0f; s[40] = t[0];",
    "PE_SHARED(float, s, 40); PE_SHARED(float, t, 64); y[pe_item()] = t[0] + s[41];",
    "PE_SHARED(float, s, 64); y[pe_item()] = s[1000];",
]


def check(cases: list[Watched], folder: Path, tolerance: float) -> None:
    """Assert that nothing is reported, and that results equal the oracle's."""
    Sanitized(cases, BOUNDS, folder).check(tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_no_size_goes_beyond_its_memory(kind: str, tmp_path: Path) -> None:
    check([watch_case(case, BACKEND) for case in KINDS[kind]], tmp_path, 1e-4)


@ONE_DRAW
@given(data=st.data())
def test_no_op_goes_beyond_its_memory(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    check(watch_every_op(data.draw, BACKEND), tmp_path_factory.mktemp("ops"), 2e-4)


@pytest.mark.parametrize("name", ["llama", "llama-int4", "mobile-sparse", "bert-lora"])
def test_no_kernel_of_a_step_goes_beyond_its_memory(name: str, tmp_path: Path) -> None:
    graph, options = {**TRAININGS, **STORED}[name]
    program = compile_program(graph, Training(**options), target=TENSOR_CORES.target())
    nodes = {
        TENSOR_CORES.gpu_kernel(node).symbol: node
        for node in kernel_nodes(program.entries["train"])
    }
    cases = [watch(node, draw_operands(node), TENSOR_CORES) for node in nodes.values()]
    Sanitized(cases, BOUNDS, tmp_path).barriers()


def test_indices_outside_of_an_axis_add_nothing(tmp_path: Path) -> None:
    index = np.array([7, -1, 2, 40, 2, 7, 1 << 32, 7, 39])
    dy = np.random.default_rng(0).standard_normal((9, 5)).astype(np.float32)
    types = floats(9, 5), TensorType(I64, (9,))
    node = graph_of(OpCase("take_dx", types, {"axis": 0, "input_shape": (40, 5)})).nodes[0]
    program = Sanitized([watch(node, [dy, index], BACKEND)], BOUNDS, tmp_path)
    program.barriers()
    expected = np.zeros((40, 5), np.float32)
    for row, place in zip(dy, index, strict=True):
        if 0 <= place < 40:
            expected[place] += row
    np.testing.assert_array_equal(program.results()[0][0], expected)


def test_each_pointer_that_is_a_number_short_is_found(tmp_path: Path) -> None:
    cases = [watch_case(case, BACKEND) for case in SHORT]
    program = Sanitized(cases, BOUNDS, tmp_path)
    for number, one in enumerate(cases):
        for pointer in range(len(one.sizes)):
            done = program.run(lacking=pointer, only=number)
            assert "heap-buffer-overflow" in done.stderr, (SHORT[number], pointer)


def test_a_tile_that_is_read_beyond_its_operand_is_found(tmp_path: Path) -> None:
    whole = watch_case(SHORT[0], BACKEND)
    text = whole.kernel.text.replace("#define PE_M 65\n", "#define PE_M 66\n")
    assert text != whole.kernel.text
    beyond = replace(whole, kernel=replace(whole.kernel, text=text))
    assert "heap-buffer-overflow" in Sanitized([beyond], BOUNDS, tmp_path).run().stderr


@pytest.mark.parametrize("body", BESIDE)
def test_writes_past_a_local_array_are_found(body: str, tmp_path: Path) -> None:
    done = Sanitized([planted(body)], BOUNDS, tmp_path).run()
    assert "use-after-poison" in done.stderr
