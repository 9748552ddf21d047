"""Generated reductions agree with the NumPy oracle, for drawn shapes and axes, under sanitizers."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pockengine.backends.c.backend import CBackend
from pockengine.compiler.ir import BOOL, F32, I32, I64, Builder, Graph, Node, TensorType, Value
from pockengine.compiler.passes.kernels.fuse import Fuse
from pockengine.compiler.target import FusionRules, Target
from pockengine.errors import CompileError
from pockengine.tests.backends.c.harness import SANITIZED, Case, device_of, draw_array, run_cases

RULES = FusionRules(
    prologue={"reduce_sum": (0,), "reduce_max": (0,), "moments": (0,), "batch_norm_sums": (0, 1)}
)


def check(cases: list[Case], folder: Path, rtol: float = 1e-5) -> None:
    compiler = ("gcc", *SANITIZED, "-march=native")
    for case, runs in zip(cases, run_cases(cases, folder, compiler), strict=True):
        for results in runs:
            for result, expected in zip(results, case.expected, strict=True):
                scale = max(1.0, float(np.abs(expected).max()))
                np.testing.assert_allclose(
                    result, expected, rtol=rtol, atol=rtol * scale, err_msg=repr(case.node)
                )


def case_of(node: Node, isa: str, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    arrays = tuple(draw_array(rng, value) for value in node.operands)
    return Case(node, CBackend(device_of(isa)).kernel(node), arrays)


def fused(build: Callable[..., Sequence[Value]], *shapes: tuple[int, ...]) -> Node:
    """Return the fusion node of the graph emitted by `build`."""
    graph = Graph("case")
    g = Builder(graph)
    results = build(g, *(g.input(f"x{i}", TensorType(F32, s)) for i, s in enumerate(shapes)))
    for index, result in enumerate(results):
        g.output(f"y{index}", result)
    Fuse(Target(RULES)).run(graph)
    assert [node.op for node in graph.nodes] == ["fusion"]
    return graph.nodes[0]


@st.composite
def reductions(draw: st.DrawFn) -> Node:
    """A reduction over any axes."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 17, 40]), min_size=1, max_size=4)))
    x = Builder(Graph("case")).input("x", TensorType(F32, shape))
    axes = tuple(axis for axis in range(len(shape)) if draw(st.booleans()))
    op = draw(
        st.sampled_from(["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"])
    )
    return Builder(Graph("case")).emit(op, x, axes=axes, keepdims=draw(st.booleans()))


@settings(max_examples=3, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(
    drawn=st.lists(reductions(), min_size=15, max_size=25),
    isa=st.sampled_from(["avx512", "avx2", "sse2"]),
)
def test_every_set_of_axes_agrees_with_the_oracle(
    drawn: list[Node], isa: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cases = [case_of(node, isa, seed) for seed, node in enumerate(drawn)]
    check(cases, tmp_path_factory.mktemp("kernels"))


SHAPES = [(1, 1, 3), (2, 7, 7, 24), (1, 5, 6, 33), (300, 16), (1, 40, 1), (4, 9, 9, 130)]


def test_batch_norm_statistics_and_sums(tmp_path: Path) -> None:
    cases = []
    for seed, shape in enumerate(SHAPES):
        g = Builder(Graph("case"))
        x, dy = (g.input(name, TensorType(F32, shape)) for name in ("x", "dy"))
        mean, rstd = (g.input(name, TensorType(F32, shape[-1:])) for name in ("mean", "rstd"))
        cases.append(case_of(g.emit("moments", x), "avx512", seed))
        cases.append(case_of(g.emit("batch_norm_sums", dy, x, mean, rstd), "avx2", seed))
    check(cases, tmp_path, rtol=2e-5)


def test_moments_are_stable_for_a_mean_far_above_the_deviation(tmp_path: Path) -> None:
    node = Builder(Graph("case")).emit(
        "moments", Builder(Graph("case")).input("x", TensorType(F32, (50, 40, 20)))
    )
    data = np.random.default_rng(0).standard_normal((50, 40, 20)).astype(np.float32) + 1000
    data[0, 0] = 0  # a first row that would spoil sums shifted by it
    data[25:, :, 1] -= 2000  # later rows far from the mean of the previous ones
    data[::2, :, 2] += 1e5
    data[3, :, 3] = 1e6
    check([Case(node, CBackend(device_of("avx512")).kernel(node), (data,))], tmp_path, rtol=1e-4)


def test_elementwise_nodes_before_a_reduction(tmp_path: Path) -> None:
    def masked_sums(
        g: Builder, dy: Value, z: Value, x: Value, mean: Value, rstd: Value
    ) -> Sequence[Value]:
        masked = g.where(g.gt(z, g.scalar(0.0)), dy, g.scalar(0.0))
        return g.emit("batch_norm_sums", masked, x, mean, rstd).results

    def gated_sum(g: Builder, dy: Value, gate: Value) -> Sequence[Value]:
        return [g.reduce_sum(g.mul(dy, gate), axes=(0, 1, 2), keepdims=False)]

    def squares(g: Builder, x: Value, y: Value) -> Sequence[Value]:
        return [g.reduce_sum(g.square(g.sub(x, y)), axes=(0, 1), keepdims=False)]

    x, c = (3, 5, 4, 24), (24,)
    built = [
        fused(masked_sums, x, x, x, c, c),
        fused(gated_sum, x, (3, 1, 1, 24)),
        fused(squares, (9, 70), (9, 70)),
        fused(squares, (9, 70), (9, 1)),
    ]
    check([case_of(node, "avx512", i) for i, node in enumerate(built)], tmp_path)


def test_integers_are_reduced_and_wrap(tmp_path: Path) -> None:
    cases: list[Case] = []
    for dtype in (I32, I64):
        for op in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min"):
            for axes in ((0,), (1,), (0, 2), (0, 1, 2)):
                g = Builder(Graph("case"))
                node = g.emit(op, g.input("x", TensorType(dtype, (3, 5, 4))), axes=axes)
                x = np.random.default_rng(len(cases)).integers(-(2**30), 2**30, (3, 5, 4))
                kernel = CBackend(device_of("avx2")).kernel(node)
                cases.append(Case(node, kernel, (x.astype(dtype.numpy),)))
    check(cases, tmp_path)


def test_booleans_are_refused_by_name() -> None:
    g = Builder(Graph("case"))
    node = g.emit("reduce_sum", g.input("x", TensorType(BOOL, (4,))), axes=(0,))
    with pytest.raises(CompileError, match="no reduce_sum of bool; cast it"):
        CBackend(device_of("avx2")).kernel(node)
