"""Generated pooling kernels and their gradients agree with the NumPy oracle."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pockengine.compiler.ir import Node
from pockengine.compiler.ir.types import f32
from pockengine.errors import GraphError
from pockengine.tests.backends.c.anchors import (
    X86,
    backend_kernel,
    case_of,
    check,
    check_on_arm,
    epilogues,
    with_epilogue,
)
from pockengine.tests.backends.c.harness import Case, device_of, new_builder
from pockengine.tests.backends.c.problems import SETTINGS

pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


def pooling(op: str, x: tuple[int, ...], **attrs: object) -> Node:
    """Build a pooling node, or its gradient for an op that ends in _dx."""
    g = new_builder()
    image = g.input("x", f32(*x))
    forward = g.emit(op.removesuffix("_dx"), image, **attrs)
    if not op.endswith("_dx"):
        return forward
    dy = g.input("dy", forward.result.type)
    if op == "max_pool2d_dx":
        return g.emit(op, image, dy, **attrs)
    return g.emit(op, dy, input_shape=x, **attrs)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    kernel = draw(pairs)
    attrs = {
        "kernel": kernel,
        "stride": draw(pairs),
        "padding": (*draw(st.tuples(*[st.integers(0, kernel[0] // 2)] * 2)),) * 2,
    }
    if kernel[1] < kernel[0]:
        attrs["padding"] = (0, 0, 0, 0)
    op = draw(st.sampled_from(["max_pool2d", "avg_pool2d"])) + draw(st.sampled_from(["", "_dx"]))
    if op.startswith("max"):
        attrs["dilation"] = draw(st.sampled_from([(1, 1), (1, 1), (2, 1)]))
    else:
        attrs["count_include_pad"] = draw(st.booleans())
    sizes = st.integers(1, 12)
    x = draw(st.tuples(st.integers(1, 2), sizes, sizes, st.sampled_from([1, 3, 8, 16, 17, 40])))
    try:
        node = pooling(op, x, **attrs)
    except GraphError:
        assume(False)
    return with_epilogue(node, draw(epilogues))


@settings(max_examples=3, **SETTINGS)
@given(drawn=st.lists(nodes(), min_size=20, max_size=24), isa=st.sampled_from(X86))
def test_any_window_agrees_under_sanitizers(
    drawn: list[Node], isa: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cases = [case_of(node, backend_kernel, isa, seed) for seed, node in enumerate(drawn)]
    check(cases, tmp_path_factory.mktemp("kernels"))


@settings(max_examples=2, **SETTINGS)
@given(drawn=st.lists(nodes(), min_size=16, max_size=16))
def test_any_window_agrees_on_arm(
    drawn: list[Node], tmp_path_factory: pytest.TempPathFactory
) -> None:
    cases = [case_of(node, backend_kernel, "neon", seed) for seed, node in enumerate(drawn)]
    check_on_arm(cases, tmp_path_factory.mktemp("kernels"))


def test_global_average_of_one_image_is_shared_by_channels(tmp_path: Path) -> None:
    node = pooling("avg_pool2d", (1, 7, 7, 70), kernel=(7, 7), stride=(1, 1))
    case = case_of(node, backend_kernel, "avx512", 1)
    assert "PE_SPLIT_COLUMNS" in case.kernel.source
    check([case], tmp_path)


def test_a_tie_gives_its_gradient_to_the_first(tmp_path: Path) -> None:
    node = pooling("max_pool2d_dx", (1, 4, 4, 8), kernel=(3, 3), stride=(1, 1))
    operands = (np.ones((1, 4, 4, 8), np.float32), np.ones((1, 2, 2, 8), np.float32))
    check([Case(node, backend_kernel(node, device_of("avx2")), operands)], tmp_path)
