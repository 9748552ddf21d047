"""Generated copies agree with the NumPy oracle, for drawn shapes, under sanitizers."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pockengine.backends.c.backend import CBackend
from pockengine.compiler.ir import F32, Builder, DType, Graph, Node, TensorType
from pockengine.compiler.ir.scalars import COMPUTED, numbers_of
from pockengine.tests.backends.c.harness import SANITIZED, Case, device_of, draw_array, run_cases

SIZES = st.sampled_from([1, 2, 3, 8, 13])


@st.composite
def movements(draw: st.DrawFn) -> Node:
    """One node of any op that moves elements."""
    op = draw(
        st.sampled_from(
            ["transpose", "concat", "pad", "slice", "pick", "broadcast_to", "reshape", "reverse"]
        )
    )
    shape = tuple(draw(st.lists(SIZES, min_size=1, max_size=4)))
    dtype = draw(st.sampled_from([F32, F32, *(COMPUTED if op == "pad" else DType)]))
    g = Builder(Graph("case"))
    x = g.input("x", TensorType(dtype, shape))
    rank = len(shape)
    if op == "transpose":
        return g.emit(op, x, perm=tuple(draw(st.permutations(range(rank)))))
    if op == "pick":
        axis = draw(st.integers(0, rank - 1))
        index = draw(st.sets(st.integers(0, shape[axis] - 1), min_size=1))
        return g.emit(op, x, axis=axis, index=tuple(sorted(index)))
    if op == "reverse":
        return g.emit(op, x, axes=tuple(axis for axis in range(rank) if draw(st.booleans())))
    if op == "concat":
        axis = draw(st.integers(0, rank - 1))
        other = (*shape[:axis], draw(SIZES), *shape[axis + 1 :])
        return g.emit(op, x, g.input("y", TensorType(dtype, other)), axis=axis)
    if op == "pad":
        low, high = (tuple(draw(st.integers(0, 2)) for _ in shape) for _ in range(2))
        return g.emit(op, x, low=low, high=high, value=1.5 if dtype is F32 else 1.0)
    if op == "slice":
        start = tuple(draw(st.integers(0, size - 1)) for size in shape)
        stop = tuple(
            draw(st.integers(low + 1, size)) for low, size in zip(start, shape, strict=True)
        )
        step = tuple(draw(st.integers(1, 2)) for _ in shape)
        return g.emit(op, x, start=start, stop=stop, step=step)
    if op == "broadcast_to":
        full = tuple(draw(SIZES) if size == 1 else size for size in shape)
        return g.emit(op, x, shape=(*([2] if draw(st.booleans()) else []), *full))
    return g.emit(op, x, shape=(x.type.size,))


@settings(max_examples=3, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(
    drawn=st.lists(movements(), min_size=40, max_size=60), isa=st.sampled_from(["avx512", "sse2"])
)
def test_every_movement_agrees_with_the_oracle(
    drawn: list[Node], isa: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    backend = CBackend(device_of(isa, 3))
    rng = np.random.default_rng(0)
    cases = [
        Case(node, backend.kernel(node), tuple(draw_array(rng, v) for v in node.operands))
        for node in drawn
    ]
    folder = tmp_path_factory.mktemp("kernels")
    compiler = ("gcc", *SANITIZED, "-march=native")
    for case, runs in zip(cases, run_cases(cases, folder, compiler), strict=True):
        for results in runs:
            for result, expected in zip(results, case.expected, strict=True):
                ours, theirs = numbers_of(result), numbers_of(expected)
                np.testing.assert_array_equal(ours, theirs, err_msg=repr(case.node))
