"""Gradients of products with integers, compared with those of the dequantized numbers."""

import numpy as np
import pytest

from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import Builder, DType, Graph, TensorType, Value
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.quantization import Quantization
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.integers.hold_integers import HoldIntegers
from pockengine.compiler.passes.integers.integer_arithmetic import IntegerArithmetic

SCALES = (0.05, 0.1, 0.07, 0.09, 0.06, 0.08, 0.1)


SHAPES = {"conv2d": ((2, 3, 3, 7), 3), "conv2d_dx": ((2, 3, 7, 3), 2), "sum": ((2, 3, 3, 7), 3)}
"""Each product's weight, and the axis of its features; "sum" adds one with a single scale."""


def weight(g: Builder, name: str, op: str, single: bool = False) -> Value:
    """Return a quantized weight with a scale per feature, or a single one."""
    shape, axis = SHAPES[op]
    scales, along = ((0.02,), None) if single else (SCALES, axis)
    integers = np.random.default_rng(len(name)).integers(-127, 128, shape)
    ones = (1,) * (0 if single else 3 - axis)
    w = g.param(name, (integers * np.reshape(scales, (-1, *ones))).astype(np.float32))
    g.graph.params[name].quantization = Quantization(scales, (0,) * len(scales), along)
    return w


def product(g: Builder, op: str, x: Value) -> tuple[Value, Value]:
    """Multiply x [2, 5, 4, 3] by a quantized weight; also return the weight."""
    w = weight(g, "w", op)
    if op == "conv2d_dx":
        padding, size = (0, 0, 0, 1), (2, 10, 9, 7)
        return g.conv2d_dx(x, w, input_shape=size, stride=(2, 2), padding=padding), w
    if op == "conv2d":
        return g.conv2d(x, w, padding=(1, 0, 1, 1)), w
    other = g.conv2d(x, weight(g, "other", op, single=True), padding=(1, 0, 1, 1))
    return g.add(other, g.conv2d(x, w, padding=(1, 0, 1, 1))), w


def gradients(op: str) -> Graph:
    """Return the gradients of a product whose operands and result are quantized."""
    g = Builder(Graph(op))
    x = g.dequantize(g.input("x", TensorType(DType.I8, (2, 5, 4, 3))), g.scalar(0.05), zero=-9)
    y, w = product(g, op, x)
    q = g.quantize(y, g.scalar(2.0), zero=3)
    real = g.dequantize(q, g.scalar(2.0), zero=3)
    dy = np.random.default_rng(2).standard_normal(y.shape).astype(np.float32)
    loss = g.reduce_sum(g.mul(real, g.constant(dy)), axes=(0, 1, 2, 3))
    g.output("loss", loss)
    g.output("q", q)
    found = backward(g, loss, {x: None, w: None})
    g.output("dx", found[x])
    g.output("dw", found[w])
    HoldIntegers().run(g.graph)
    return g.graph


@pytest.mark.parametrize("op", SHAPES)
@pytest.mark.parametrize(("kind", "tolerance"), [("f32", 1e-5), ("int8", 0.03)])
def test_gradients_equal_those_of_real_numbers(op: str, kind: str, tolerance: float) -> None:
    real, integers = gradients(op), gradients(op)
    IntegerArithmetic(kind).run(integers)
    x = {"x": np.random.default_rng(1).integers(-128, 128, (2, 5, 4, 3)).astype(np.int8)}

    expected, found = run(real, x), run(integers, x)

    products = [node for node in integers.nodes if lookup(node.op).product]
    assert all(node.result.dtype is DType.I32 for node in products) == (kind == "int8")
    np.testing.assert_array_less(abs(expected["q"].astype("i4") - found["q"]), 2)
    for name in ("dx", "dw"):
        error = np.linalg.norm(found[name] - expected[name]) / np.linalg.norm(expected[name])
        assert error <= tolerance, name
