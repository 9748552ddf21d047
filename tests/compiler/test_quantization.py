"""Quantization of params: text form, transposition, dequantization, checks."""

import numpy as np
import pytest

from pockengine.compiler.ir import F32, Builder, Graph
from pockengine.compiler.ir.contents import InMemory
from pockengine.compiler.ir.quantization import Quantization, parse_quantization
from pockengine.compiler.ir.scalars import DType
from pockengine.compiler.ir.text import parse_graph, print_graph
from pockengine.compiler.ir.verify import verify
from pockengine.errors import GraphError

WHOLE = Quantization((0.1,), (-3,))
CHANNELS = Quantization((0.5, 0.25, 1e-9), (0, 1, 2), axis=1)
DATA = np.array([[1, 2, 3], [4, 5, 6]], np.int8)


@pytest.mark.parametrize("quantization", [WHOLE, CHANNELS])
def test_text_round_trips(quantization: Quantization) -> None:
    assert parse_quantization(str(quantization)) == quantization
    g = Builder(Graph("g"))
    g.output("w", g.transpose(g.param("w", InMemory(DATA), permutation=(1, 0)), perm=(1, 0)))
    param = g.graph.params["w"]
    param.source, param.quantization = WHOLE, quantization
    text = print_graph(g.graph)
    again = parse_graph(text, {"w": DATA})
    verify(again)
    assert print_graph(again) == text
    assert (again.params["w"].source, again.params["w"].quantization) == (WHOLE, quantization)


def test_transposition_moves_the_axis() -> None:
    turned = CHANNELS.transposed((1, 0))
    assert (turned.scales, turned.axis) == (CHANNELS.scales, 0)
    assert WHOLE.transposed((1, 0)) == WHOLE


def test_integers_represent_scaled_differences() -> None:
    np.testing.assert_allclose(WHOLE.real(DATA), 0.1 * (DATA + 3.0), rtol=1e-6)
    np.testing.assert_allclose(CHANNELS.real(DATA)[1], [2.0, 1.0, 4e-9], rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "shape", "scales", "zeros", "axis", "message"),
    [
        (F32, (2,), (0.5,), (0,), None, "f32 cannot be quantized"),
        (DType.I8, (2,), (0.5,), (200,), None, "outside of i8"),
        (DType.U8, (2,), (0.5,), (-1,), None, "outside of u8"),
        (DType.I8, (2,), (0.0,), (0,), None, "must be positive and finite"),
        (DType.I8, (2,), (float("inf"),), (0,), None, "must be positive and finite"),
        (DType.I8, (2,), (0.5, 0.5), (0, 0), None, "give one of each"),
        (DType.I8, (2,), (0.5, 0.5), (0,), 0, "give one of each"),
        (DType.I8, (3,), (0.5, 0.5), (0, 0), 0, "do not fit shape"),
        (DType.I8, (2,), (0.5, 0.5), (0, 0), 1, "do not fit shape"),
    ],
)
def test_invalid_quantizations_are_refused(
    dtype: DType,
    shape: tuple[int, ...],
    scales: tuple[float, ...],
    zeros: tuple[int, ...],
    axis: int | None,
    message: str,
) -> None:
    with pytest.raises(GraphError, match=message):
        Quantization(scales, zeros, axis).check(dtype, shape)
