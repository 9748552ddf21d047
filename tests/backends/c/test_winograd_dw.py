"""Winograd weight gradients agree with the NumPy oracle.

The bound is that of test_winograd.py with the norms of these transforms: an output's rounding error
is 2 times that of a direct sum for r = 2, and 24 times for r = 4, in the worst of the nine taps.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pockengine.backends.c.convolutions.winograd_dw import (
    winograd_gradient_kernel,
    winograd_gradient_plans,
)
from pockengine.backends.c.elementwise.epilogue import open_fusion
from pockengine.backends.native.kernel import Kernel
from pockengine.backends.window import window_of
from pockengine.compiler.ir import Node
from pockengine.devices.schema import Device
from pockengine.tests.backends.c.anchors import case_of, check_on_arm, check_optimized
from pockengine.tests.backends.c.problems import DIRECT, SETTINGS, convolution
from pockengine.tests.backends.c.winograd_cases import (
    FEATURES,
    PADDINGS,
    PICTURES,
    SIZES,
    cheapest,
    check_any,
)

BOUND = {2: 2 * DIRECT, 4: 24 * DIRECT}
"""Maximum error by r, relative to the largest result."""


def emit(size: int, split: str | None = None, block: int | None = None) -> Callable[..., Kernel]:
    """Return an emitter of the cheapest plan of a tile size, changed by the test's arguments."""

    def kernel(node: Node, device: Device) -> Kernel:
        opened = open_fusion(node, device)
        plans = winograd_gradient_plans(window_of(node), device, (size,))
        plan = cheapest(plans, split, block)
        return winograd_gradient_kernel(opened, window_of(node), plan, device)

    return kernel


@st.composite
def gradients(draw: st.DrawFn) -> Node:
    """The weight gradient of a 3x3 convolution of stride 1, with any size and padding."""
    x = draw(PICTURES)
    channels = draw(st.sampled_from([1, 3, 8, 15, 16, 33, 70]))
    kernel = (3, 3, channels, draw(FEATURES))
    return convolution((*x, channels), kernel, padding=draw(PADDINGS))["dw"]


@pytest.mark.parametrize(("size", "isa"), SIZES)
def test_any_geometry_agrees_under_sanitizers(size: int, isa: str, tmp_path: Path) -> None:
    check_any(gradients(), ["INNER", "COLUMNS"], partial(emit, size), isa, tmp_path, BOUND[size])


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_whole_layers_agree(size: int, tmp_path: Path) -> None:
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
    check_optimized(cases, tmp_path, tolerance=BOUND[size])


@settings(max_examples=1, **SETTINGS)
@given(drawn=st.lists(gradients(), min_size=6, max_size=6))
def test_any_geometry_agrees_on_arm(
    drawn: list[Node], tmp_path_factory: pytest.TempPathFactory
) -> None:
    cases = [case_of(node, emit(4), "neon", seed) for seed, node in enumerate(drawn)]
    check_on_arm(cases, tmp_path_factory.mktemp("kernels"), tolerance=BOUND[4])
