"""Forms: TFLite's result of each op equals the oracle's; every form has a case."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pockengine.backends.tflite.backend import tflite_backend
from pockengine.backends.tflite.forms import FORMS
from pockengine.backends.tflite.model import write_model
from pockengine.backends.tflite.names import MODEL, NODES
from pockengine.backends.tflite.runtime import LiteModel
from pockengine.compiler.compile import compile_entries
from pockengine.compiler.ir import Builder, DType, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.devices import load_device
from pockengine.tests.backends.form_checks import check_op, made

TARGET = tflite_backend(load_device("host")).target()
MADE = made(FORMS)


def computed(graph: Graph, inputs: dict[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """The runtime's results for a graph without params."""
    program = compile_entries("case", {"case": graph}, target=TARGET)
    write_model(program, folder)
    nodes = json.loads((folder / NODES).read_text(encoding="utf-8"))
    return LiteModel(folder / MODEL, nodes, 2).run("case", "case", inputs)


@pytest.mark.parametrize("op", MADE)
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_an_op_equals_the_oracle(op: str, data: st.DataObject, tmp_path: Path) -> None:
    check_op(op, data, computed, tmp_path)


def _divided(dtype: DType) -> Graph:
    g = Builder(Graph("net"))
    operands = (g.input(name, TensorType(dtype, (6,))) for name in ("x0", "x1"))
    with g.scope("positions"):
        g.output("y", g.quotient(*operands))
    return g.graph


def test_integers_of_32_bits_are_divided_and_nothing_traps(tmp_path: Path) -> None:
    a = np.array([7, -7, 7, -(2**31), 5, 2**31 - 1], np.int32)
    b = np.array([2, 2, 0, -1, -5, 3], np.int32)
    graph = _divided(DType.I32)
    with np.errstate(all="ignore"):
        expected = run(graph, {"x0": a, "x1": b}, {})["y"]
    found = computed(graph, {"x0": a, "x1": b}, tmp_path)["y"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("op", ["quotient", "rem"])
def test_integers_of_64_bits_are_divided_exactly(op: str, tmp_path: Path) -> None:
    """Both ends of the range, zero, odd and even divisors, and powers of two, in all pairs."""
    low, high = -(2**63), 2**63 - 1
    near = [0, 1, -1, 7, -7, 6, -6, 48, 2**31, -(2**32), 2**53 + 1]
    numbers = np.array([*near, 2**62, -(2**62), 3 << 40, low, low + 2, high, high - 1], np.int64)
    a, b = (array.reshape(-1) for array in np.meshgrid(numbers, numbers))
    g = Builder(Graph("net"))
    operands = (g.input(name, TensorType(DType.I64, a.shape)) for name in ("x0", "x1"))
    g.output("y", getattr(g, op)(*operands))
    with np.errstate(all="ignore"):
        expected = run(g.graph, {"x0": a, "x1": b}, {})["y"]
    found = computed(g.graph, {"x0": a, "x1": b}, tmp_path)["y"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("op", ["shift_left", "shift_right"])
def test_integers_of_64_bits_are_shifted_by_any_amount(op: str, tmp_path: Path) -> None:
    numbers = [0, 1, -1, 2**31, -(2**32), 0x0123456789ABCDEF, -(2**63), 2**63 - 1]
    by = [-1, 0, 1, 31, 32, 33, 47, 62, 63, 64, 2**40]
    a, b = (x.reshape(-1) for x in np.meshgrid(np.array(numbers), np.array(by)))
    g = Builder(Graph("net"))
    operands = (g.input(name, TensorType(DType.I64, a.shape)) for name in ("x0", "x1"))
    g.output("y", getattr(g, op)(*operands))
    expected = run(g.graph, {"x0": a, "x1": b}, {})["y"]
    found = computed(g.graph, {"x0": a, "x1": b}, tmp_path)["y"]
    np.testing.assert_array_equal(found, expected)


def _bits(op: str, dtype: DType) -> Graph:
    g = Builder(Graph("net"))
    operands = [g.input(name, TensorType(dtype, (9,))) for name in ("x0", "x1")]
    with g.scope("masks"):
        g.output("y", getattr(g, op)(*operands))
    return g.graph


@pytest.mark.parametrize("dtype", [DType.I32, DType.I64])
@pytest.mark.parametrize("op", ["bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"])
def test_bits_are_those_of_the_oracle(op: str, dtype: DType, tmp_path: Path) -> None:
    """Signs, zeros, the ends of the range, and shifts by too many bits."""
    limits = np.iinfo(str(dtype.numpy))
    a = np.array([5, -7, limits.min, limits.max, -1, 0, 12345, -98765, limits.min], dtype.numpy)
    b = np.array([3, -2, limits.min, limits.min, 31, 40, 7, 33, 1], dtype.numpy)
    graph = _bits(op, dtype)
    expected = run(graph, {"x0": a, "x1": b}, {})["y"]
    np.testing.assert_array_equal(computed(graph, {"x0": a, "x1": b}, tmp_path)["y"], expected)
