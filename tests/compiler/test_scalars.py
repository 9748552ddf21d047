"""Scalar types: the oracle and the text form of each, and unsupported types."""

import numpy as np
import pytest
from safetensors.numpy import save

from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.scalars import DType, from_bf16, of_numbers, to_bf16
from pockengine.compiler.ir.text import parse_graph, print_graph
from pockengine.compiler.ir.verify import verify
from pockengine.errors import GraphError

NUMBERS = {
    "bool": [True, False],
    "u8": [0, 255],
    "i8": [-128, 127],
    "bf16": [1.5, -3.0],
    "f16": [1.5, -65504.0],
}


@pytest.mark.parametrize("dtype", DType)
def test_numpy_dtypes_round_trip(dtype: DType) -> None:
    array = np.zeros(3, dtype.numpy)
    assert DType.of(array) is dtype
    assert array.nbytes == 3 * dtype.itemsize


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype is not DType.BF16])
def test_safetensors_names_match(dtype: DType) -> None:
    assert f'"dtype":"{dtype.stored_name}"'.encode() in save({"x": np.zeros(2, dtype.numpy)})


@pytest.mark.parametrize("dtype", DType)
def test_text_form_supports_every_type(dtype: DType) -> None:
    g = Builder(Graph("g"))
    data = of_numbers(NUMBERS.get(dtype.value, [1, 2]), dtype)
    g.output("y", g.emit("concat", g.param("w", data), g.constant(data), axis=0).result)
    text = print_graph(g.graph)
    again = parse_graph(text, {"w": data})
    verify(again)
    assert print_graph(again) == text
    assert run(again, {})["y"].tobytes() == 2 * data.tobytes()


def test_error_names_an_unsupported_array_type() -> None:
    with pytest.raises(GraphError, match=r"arrays of uint16 are not supported.*bfloat16"):
        DType.of(np.zeros(1, np.uint16))


def test_bf16_rounds_to_nearest_even() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 20000, dtype=np.uint32)
    ties = (bits & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    x = np.concatenate([bits, ties]).view(np.float32)
    x = x[np.isfinite(x) & (np.abs(x) < 3e38)]
    y = from_bf16(to_bf16(x))
    half = _gap(y)
    error = np.abs(x.astype(np.float64) - y.astype(np.float64))
    assert (error <= half / 2).all()
    tie = error == half / 2
    assert tie.sum() > 10000
    assert ((y.view(np.uint32)[tie] >> 16) % 2 == 0).all()


def _gap(y: np.ndarray) -> np.ndarray:
    """Return the distance between bf16 numbers near y: eight significant bits."""
    return np.asarray(2.0 ** (np.maximum(np.frexp(y.astype(np.float64))[1], -125) - 8))


def test_bf16_preserves_special_values() -> None:
    x = np.array([np.inf, -np.inf, np.nan, -0.0, 3.4e38], np.float32)
    y = from_bf16(to_bf16(x))
    assert y[0] == np.inf
    assert y[1] == -np.inf
    assert np.isnan(y[2])
    assert np.signbit(y[3])
    assert y[4] == np.inf
    assert from_bf16(to_bf16(np.float32(1.0))).shape == ()


def test_casts_saturate_and_widen() -> None:
    g = Builder(Graph("g"))
    x = g.input("x", TensorType(F32, (5,)))
    for name in ("u8", "i8", "bf16", "f16"):
        g.output(name, g.cast(g.cast(x, dtype=name), dtype="f32"))
    x_data = np.array([-300.0, -0.5, 1.00390625, 300.0, np.nan], np.float32)
    y = run(g.graph, {"x": x_data})
    assert y["u8"].tolist() == [0, 0, 1, 255, 0]
    assert y["i8"].tolist() == [-128, 0, 1, 127, 0]
    assert y["bf16"][:4].tolist() == [-300.0, -0.5, 1.0, 300.0]
    assert y["f16"][:4].tolist() == [-300.0, -0.5, 1.00390625, 300.0]


@pytest.mark.parametrize("name", ["bf16", "f16", "i8", "u8"])
def test_storage_types_need_a_cast_before_arithmetic(name: str) -> None:
    g = Builder(Graph("g"))
    x = g.cast(g.input("x", TensorType(F32, (2, 2))), dtype=name)
    moved = g.transpose(g.slice(x, start=(0, 0), stop=(1, 2), step=(1, 1)), perm=(1, 0))
    assert moved.dtype.value == name
    product = [lambda: g.matmul(x, x)] if name != "i8" else []  # i8 supports products
    for make in (lambda: g.add(x, x), lambda: g.reduce_sum(x, axes=(0,)), *product):
        with pytest.raises(GraphError, match=rf"does not calculate with {name}.*cast it first"):
            make()


def test_gradients_flow_through_differentiable_types_only() -> None:
    assert [dtype.value for dtype in DType if dtype.differentiable] == ["f32", "i8"]
    assert [dtype.value for dtype in DType if dtype.is_float] == ["f32", "bf16", "f16"]
