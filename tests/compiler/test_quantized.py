"""Ops on quantized integers, compared with integer arithmetic.

No framework has equivalents of these ops (test_op_gradients.py).
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import F32, I32, Builder, DType, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.types import f32
from pockengine.compiler.ops.quantized import fixed_point, rescaled
from pockengine.compiler.passes.integers.integer_rescale import nearest_fixed_point
from pockengine.errors import GraphError

I8 = DType.I8
WHOLE = st.integers(-(2**31) + 1, 2**31 - 1)


def rescale_exactly(x: int, multiplier: int, exponent: int) -> int:
    """Compute `rescale` with Python's arbitrary-precision integers, without shifts."""
    high = math.floor(Fraction(x * 2 ** max(exponent, 0) * multiplier, 2**31) + Fraction(1, 2))
    below = Fraction(abs(high), 2 ** max(-exponent, 0))
    return int(math.copysign(1, high)) * math.floor(below + Fraction(1, 2))


@given(WHOLE, st.floats(2**-31, 0.999))
def test_rescaling_rounds_exactly(x: int, factor: float) -> None:
    multiplier, exponent = fixed_point(np.array(factor))
    operand = np.array([x], np.int32)
    assert rescaled(operand, multiplier, exponent)[0] == rescale_exactly(
        x, int(multiplier), int(exponent)
    )


@given(WHOLE, st.floats(2**-31, 0.999))
def test_rescaling_once_rounds_the_product_once(x: int, factor: float) -> None:
    multiplier, exponent = fixed_point(np.array(factor))
    operand = np.array([x], np.int32)
    exact = Fraction(x * int(multiplier), 2 ** (31 - int(exponent)))
    found = rescaled(operand, multiplier, exponent, once=True)[0]
    assert found == math.floor(exact + Fraction(1, 2))


@pytest.mark.parametrize("exact", [False, True])
def test_multipliers_round_once_as_f64_does(exact: bool) -> None:
    """Factors of random f32 scales, and powers of two, whose products are halves."""
    rng = np.random.default_rng(0)
    scales = np.exp2(rng.uniform(-6, 0, (3, 400))).astype("f4").astype(np.float64)
    factors = 2.0 ** -np.arange(22) if exact else scales[0] * scales[1] / scales[2]
    multiplier, exponent = nearest_fixed_point(factors)
    for factor, fixed in zip(factors, zip(multiplier, exponent, strict=True), strict=True):
        most = min(2**30 - 1, math.floor(255 / factor))
        halves = (np.arange(-255, 255) + 0.5) / factor
        x = np.concatenate([np.floor(halves), np.ceil(halves), np.arange(-300, 300)])
        x = np.append(x, rng.integers(-most, most, 200))
        x = np.clip(x, -most, most).astype(np.int32)
        expected = [math.copysign(math.floor(abs(n * factor) + 0.5), n) for n in x.tolist()]
        np.testing.assert_array_equal(rescaled(x, *fixed, once=True), expected)


@given(st.integers(-(2**20), 2**20), st.floats(1.0, 500.0))
def test_rescaling_by_more_than_one(x: int, factor: float) -> None:
    multiplier, exponent = fixed_point(np.array(factor))
    (found,) = rescaled(np.array([x], np.int32), multiplier, exponent)
    assert abs(found - x * factor) <= 0.5 + abs(x * factor) * 2**-30 + 2 ** int(exponent)


@pytest.mark.parametrize("factor", [0.0, -1.0, math.inf, math.nan, 2.0**31])
def test_factors_out_of_range_are_refused(factor: float) -> None:
    with pytest.raises(GraphError, match="positive, finite"):
        fixed_point(np.array([0.5, factor]))


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1), st.integers(-128, 127))
def test_quantized_numbers_are_the_nearest(numbers: list[float], zero: int) -> None:
    g = Builder(Graph("g"))
    x = g.input("x", f32(len(numbers)))
    q = g.quantize(x, g.scalar(0.25), zero=zero)
    g.output("q", q)
    g.output("y", g.dequantize(q, g.scalar(0.25), zero=zero))
    data = np.array(numbers, np.float32)
    found = run(g.graph, {"x": data})
    least, most = (-128 - zero) * 0.25, (127 - zero) * 0.25
    np.testing.assert_allclose(found["y"], np.clip(data, least, most), atol=0.125)
    np.testing.assert_array_equal(found["y"], (found["q"].astype(np.float32) - zero) * 0.25)


def test_nan_becomes_zero() -> None:
    g = Builder(Graph("g"))
    g.output("q", g.quantize(g.input("x", f32(3)), g.scalar(1.0), zero=-7))
    x = np.array([np.nan, np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(run(g.graph, {"x": x})["q"], [-7, 127, -128])


def test_gradients_pass_through_rounding_and_stop_at_clamps() -> None:
    g = Builder(Graph("g"))
    x = g.input("x", f32(4))
    y = g.dequantize(g.quantize(x, g.scalar(0.5), low=-4, high=4), g.scalar(0.5))
    loss = g.reduce_sum(g.mul(y, y), axes=(0,))
    g.output("dx", backward(g, loss, {x: None})[x])
    data = np.array([0.6, -1.4, 9.0, -3.0], np.float32)
    np.testing.assert_array_equal(run(g.graph, {"x": data})["dx"], [1.0, -3.0, 0.0, 0.0])


def test_integer_padding_is_the_zero_point() -> None:
    g = Builder(Graph("g"))
    x, w = g.input("x", TensorType(I8, (1, 2, 2, 1))), g.input("w", TensorType(I8, (3, 3, 1, 1)))
    y = g.conv2d(x, w, padding=(1, 1, 1, 1), zeros=(-5, 0))
    assert y.type == TensorType(I32, (1, 2, 2, 1))
    g.output("y", y)
    inputs = {"x": np.full((1, 2, 2, 1), -5, np.int8), "w": np.full((3, 3, 1, 1), 7, np.int8)}
    np.testing.assert_array_equal(run(g.graph, inputs)["y"], 0)


@pytest.mark.parametrize(
    ("zeros", "dtypes"), [((0, 128), (I8, I8)), ((3, 0), (F32, I8)), ((0, 0), (I32, I8))]
)
def test_unsupported_product_operands_are_refused(
    zeros: tuple[int, int], dtypes: tuple[DType, DType]
) -> None:
    g = Builder(Graph("g"))
    a, b = (g.input(n, TensorType(d, (2, 2))) for n, d in zip("ab", dtypes, strict=True))
    with pytest.raises(GraphError, match=r"zero point|multiplies f32 and i8"):
        g.matmul(a, b, zeros=zeros)
