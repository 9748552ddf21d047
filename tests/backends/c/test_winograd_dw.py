"""Winograd's weight gradients agree with the NumPy oracle.

The bound is test_winograd.py's, with the norms of these transforms: an output's rounding error is
2 times a direct sum's for r = 2 and 24 times for r = 4 in the worst of the nine taps.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pockengine.backends.c.epilogue import open_fusion
from pockengine.backends.c.kernel import Kernel
from pockengine.backends.c.winograd_dw import winograd_gradient_kernel, winograd_gradient_plans
from pockengine.backends.window import window_of
from pockengine.compiler.ir import Node
from pockengine.devices.schema import Device
from pockengine.tests.backends.c.anchors import FAST, case_of, check, check_on_arm
from pockengine.tests.backends.c.problems import DIRECT, SETTINGS, convolution

BOUND = {2: 2 * DIRECT, 4: 24 * DIRECT}
"""Largest error by r, relative to the largest result."""


def emit(size: int, split: str | None = None, block: int | None = None) -> Callable[..., Kernel]:
    """An emitter of the cheapest plan of one tile size, changed where a test asks for it."""

    def kernel(node: Node, device: Device) -> Kernel:
        opened = open_fusion(node, device)
        plans = winograd_gradient_plans(window_of(node), device, (size,))
        plan = min(plans, key=lambda each: each.cycles)
        if split is not None:
            plan = replace(plan, split=split)
        if block is not None:
            plan = replace(plan, block=min(block, plan.tiling.tiles))
        return winograd_gradient_kernel(opened, window_of(node), plan, device)

    return kernel


@st.composite
def gradients(draw: st.DrawFn) -> Node:
    """The weight gradient of a 3x3 convolution of stride 1, of any size and padding."""
    x = (*draw(st.tuples(st.integers(1, 3), st.integers(3, 14), st.integers(3, 14))),)
    channels = draw(st.sampled_from([1, 3, 8, 15, 16, 33, 70]))
    features = draw(st.sampled_from([1, 4, 8, 17, 24, 49]))
    padding = (*draw(st.tuples(*[st.integers(0, 3)] * 4)),)
    return convolution((*x, channels), (3, 3, channels, features), padding=padding)["dw"]


@pytest.mark.parametrize(("size", "isa"), [(2, "avx2"), (4, "avx512"), (4, "sse2")])
def test_any_geometry_agrees_under_sanitizers(size, isa, tmp_path_factory) -> None:
    @settings(max_examples=1, **SETTINGS)
    @given(
        drawn=st.lists(gradients(), min_size=4, max_size=4),
        how=st.lists(
            st.tuples(st.sampled_from(["INNER", "COLUMNS"]), st.sampled_from([None, 5])),
            min_size=4,
            max_size=4,
        ),
    )
    def agrees(drawn, how) -> None:
        cases = [
            case_of(node, emit(size, split, block), isa, seed)
            for seed, (node, (split, block)) in enumerate(zip(drawn, how, strict=True))
        ]
        check(cases, tmp_path_factory.mktemp("kernels"), tolerance=BOUND[size])

    agrees()


@pytest.mark.parametrize("size", [2, 4])
def test_whole_layers_agree(size, tmp_path) -> None:
    """Several panels, blocks of channels, and blocks of tiles."""
    same = (1, 1, 1, 1)
    layers = [
        convolution((3, 13, 15, 256), (3, 3, 256, 100), padding=same)["dw"],
        convolution((2, 28, 28, 64), (3, 3, 64, 64), padding=same)["dw"],
    ]
    cases = [
        case_of(node, emit(size, split, block), "avx512", seed)
        for seed, node in enumerate(layers)
        for split in ("INNER", "COLUMNS")
        for block in (None, 13)
    ]
    check(cases, tmp_path, FAST, tolerance=BOUND[size])


@settings(max_examples=1, **SETTINGS)
@given(drawn=st.lists(gradients(), min_size=6, max_size=6))
def test_any_geometry_agrees_on_arm(drawn, tmp_path_factory) -> None:
    cases = [case_of(node, emit(4), "neon", seed) for seed, node in enumerate(drawn)]
    check_on_arm(cases, tmp_path_factory.mktemp("kernels"), tolerance=BOUND[4])
