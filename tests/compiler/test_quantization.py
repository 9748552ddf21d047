"""Types that say what their integers stand for: text form, equality, what moves them."""

import numpy as np
import pytest

from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.ir.contents import InMemory
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.quantization import Quantization, parse_quantization
from pockengine.compiler.ir.scalars import DType
from pockengine.compiler.ir.text import parse_graph, print_graph
from pockengine.compiler.ir.verify import verify
from pockengine.errors import GraphError

WHOLE = Quantization((0.1,), (-3,))
CHANNELS = Quantization((0.5, 0.25, 1e-9), (0, 1, 2), axis=1)
DATA = np.array([[1, 2, 3], [4, 5, 6]], np.int8)


@pytest.mark.parametrize("quantization", [WHOLE, CHANNELS])
def test_text_reads_back_the_same(quantization: Quantization) -> None:
    assert parse_quantization(str(quantization)) == quantization
    g = Builder(Graph("g"))
    x = g.input("x", TensorType(DType.I8, (2, 3), quantization))
    w = g.param("w", InMemory(DATA, quantization), permutation=(1, 0))
    g.output("x", g.transpose(x, perm=(1, 0)))
    g.output("w", g.transpose(w, perm=(1, 0)))
    g.graph.params["w"].source = WHOLE
    text = print_graph(g.graph)
    again = parse_graph(text, {"w": DATA})
    verify(again)
    assert print_graph(again) == text
    assert again.params["w"].value.type == g.graph.params["w"].value.type
    assert again.params["w"].source == WHOLE


def test_quantization_is_a_part_of_the_type() -> None:
    plain, quantised = TensorType(DType.I8, (2, 3)), TensorType(DType.I8, (2, 3), WHOLE)
    assert plain != quantised
    g = Builder(Graph("g"))
    x, y = g.input("x", plain), g.input("y", quantised)
    with pytest.raises(GraphError, match="others differ"):
        g.emit("concat", x, y, axis=0)


def test_moves_keep_what_integers_stand_for() -> None:
    g = Builder(Graph("g"))
    x = g.input("x", TensorType(DType.I8, (2, 3), WHOLE))
    w = g.param("w", InMemory(DATA, CHANNELS))
    assert g.reshape(x, shape=(6,)).type.quantization == WHOLE
    assert g.stop_gradient(w).type == w.type
    turned = g.transpose(w, perm=(1, 0)).type.quantization
    assert turned is not None
    assert (turned.scales, turned.axis) == (CHANNELS.scales, 0)
    with pytest.raises(GraphError, match="only transpose moves it"):
        g.reshape(w, shape=(6,))
    stored = g.cast(w, dtype="f32")
    assert stored.type == TensorType(F32, (2, 3))
    g.output("y", stored)
    np.testing.assert_array_equal(run(g.graph, {"x": DATA})["y"], DATA)


def test_integers_stand_for_scaled_differences() -> None:
    np.testing.assert_allclose(WHOLE.real(DATA), 0.1 * (DATA + 3.0), rtol=1e-6)
    np.testing.assert_allclose(CHANNELS.real(DATA)[1], [2.0, 1.0, 4e-9], rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "shape", "scales", "zeros", "axis", "message"),
    [
        (F32, (2,), (0.5,), (0,), None, "f32 cannot be quantised"),
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
def test_what_makes_no_sense_is_refused(
    dtype: DType,
    shape: tuple[int, ...],
    scales: tuple[float, ...],
    zeros: tuple[int, ...],
    axis: int | None,
    message: str,
) -> None:
    with pytest.raises(GraphError, match=message):
        TensorType(dtype, shape, Quantization(scales, zeros, axis))
