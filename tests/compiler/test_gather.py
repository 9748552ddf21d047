"""Indices out of range: reads are clamped, additions dropped, and gradients agree."""

import numpy as np
import pytest

from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType, Value
from pockengine.compiler.ir.evaluate import run

INDEX = np.array([2, -1, 0, 9, 2])


def results(along: bool, known: bool) -> dict[str, np.ndarray]:
    """Add rows at INDEX to zeros, weight the sums, and differentiate with respect to the rows."""
    g = Builder(Graph("scattered"))
    rows = g.param("rows", np.random.default_rng(0).standard_normal((5, 3)).astype("f4"))
    index = np.repeat(INDEX[:, None], 3, axis=1) if along else INDEX
    places: Value = g.constant(index) if known else g.input("index", TensorType(I64, index.shape))
    op = "take_along_dx" if along else "take_dx"
    sums = g.emit(op, rows, places, axis=0, input_shape=(4, 3)).result
    weights = g.constant(np.arange(12, dtype="f4").reshape(4, 3))
    loss = g.reduce_sum(g.mul(g.square(sums), weights), axes=(0, 1), keepdims=False)
    g.output("sums", sums)
    g.output("dx", backward(g, loss, {rows: None})[rows])
    return run(g.graph, {} if known else {"index": index})


@pytest.mark.parametrize("along", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_additions_out_of_range_are_dropped_and_have_no_gradient(along: bool, known: bool) -> None:
    found = results(along, known)

    rows = np.random.default_rng(0).standard_normal((5, 3)).astype("f4")
    sums = np.zeros((4, 3), "f4")
    sums[0], sums[2] = rows[2], rows[0] + rows[4]
    slope = 2 * sums * np.arange(12, dtype="f4").reshape(4, 3)
    np.testing.assert_allclose(found["sums"], sums, rtol=1e-6)
    dx = np.stack([slope[2], np.zeros(3), slope[0], np.zeros(3), slope[2]])
    np.testing.assert_allclose(found["dx"], dx, rtol=1e-6)


def test_reads_out_of_range_are_clamped_and_have_no_gradient() -> None:
    g = Builder(Graph("read"))
    table = g.param("table", np.arange(12, dtype="f4").reshape(4, 3))
    taken = g.take(table, g.input("index", TensorType(I64, (5,))), axis=0)
    g.output("taken", taken)
    total = g.reduce_sum(taken, axes=(0, 1), keepdims=False)
    g.output("dx", backward(g, total, {table: None})[table])

    found = run(g.graph, {"index": INDEX})

    np.testing.assert_array_equal(found["taken"][:, 0], [6, 0, 0, 9, 6])
    np.testing.assert_array_equal(found["dx"][:, 0], [1, 0, 2, 0])
    assert taken.dtype is F32
