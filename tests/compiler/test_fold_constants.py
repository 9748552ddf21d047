"""Constants are folded if their results are small, which types show before any computation."""

import warnings

import numpy as np
import pytest

from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.passes.cleanup.fold_constants import LARGEST_GROWTH, FoldConstants
from pockengine.compiler.passes.forward.fold_scales import FoldScales


def constant(g: Builder, *shape: int) -> object:
    return g.constant(np.ones(shape, np.float32))


def folded(g: Builder) -> list[str]:
    """Return the ops that remain after folding."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FoldConstants(frozenset()).run(g.graph)
    return [node.op for node in g.graph.nodes]


@pytest.mark.parametrize("op", ["mul", "matmul", "gt"])
def test_huge_results_are_never_computed(op: str) -> None:
    g, side = Builder(Graph("huge")), 1 << 20  # 4 TiB as f32
    y = g.emit(op, constant(g, side, 1), constant(g, 1, side)).result
    g.output("y", y)
    assert folded(g) == [op]


def test_huge_intermediates_are_not_computed_either() -> None:
    g, side = Builder(Graph("summed")), 1 << 20
    y = g.mul(constant(g, side, 1), constant(g, 1, side))
    g.output("y", g.reduce_sum(y, axes=(0, 1)))
    assert folded(g) == ["mul", "reduce_sum"]


def test_copies_of_one_value_are_bounded() -> None:
    g = Builder(Graph("doubled"))
    y = constant(g, 1024)
    for _ in range(40):
        y = g.emit("concat", y, y, axis=0).result
    g.output("y", y)
    left = folded(g)
    assert len(left) > 35
    largest = max(data.nbytes for data in g.graph.constants.values())
    assert largest <= 4096 + LARGEST_GROWTH


def test_windows_of_a_large_constant_image_are_not_copied() -> None:
    g = Builder(Graph("windows"))
    x, w = constant(g, 1, 256, 256, 64), constant(g, 7, 7, 64, 64)
    g.output("y", g.conv2d(x, w, padding=(3, 3, 3, 3)))
    assert folded(g) == ["conv2d"]


def test_small_results_fold() -> None:
    g = Builder(Graph("small"))
    product = g.matmul(constant(g, 8, 8), constant(g, 8, 8))
    g.output("y", g.add(product, constant(g, 8)))
    assert folded(g) == []


def test_non_finite_values_fold_without_a_warning() -> None:
    g = Builder(Graph("infinite"))
    x = g.input("x", TensorType(F32, (2, 3)))
    zero = g.constant(np.zeros(3, np.float32))
    huge = g.constant(np.full((3, 3), 3e38, np.float32))
    g.output("y", g.add(x, g.add(g.log(zero), g.div(zero, zero))))
    g.output("z", g.mul(g.matmul(x, huge), g.constant(np.full(3, 10, np.float32))))
    assert folded(g) == ["add", "matmul", "mul"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FoldScales(frozenset()).run(g.graph)
    assert [node.op for node in g.graph.nodes] == ["add", "matmul"]
