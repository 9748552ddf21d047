"""Winograd convolutions agree with the NumPy oracle, also at the borders of tiles and blocks.

The bound: assume that each value has a rounding error of the same relative size. An output's error
is then sqrt(sum over points of (A B G)²) times that of a direct sum, where A, B and G are the norms
of the transforms' rows. At its worst position in a tile that factor is 1.7 for r = 2 and 31 for r =
4 (11 on average). Direct sums of a few hundred products stay below 2e-6 of the largest result, so r
= 4 stays below 6.2e-5.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pockengine.backends.c.convolutions.winograd import winograd_kernel, winograd_plans
from pockengine.backends.c.elementwise.epilogue import open_fusion
from pockengine.backends.native.kernel import Kernel
from pockengine.backends.window import window_of
from pockengine.compiler.ir import Node
from pockengine.devices.schema import Device
from pockengine.tests.backends.c.anchors import (
    case_of,
    check_on_arm,
    check_optimized,
    with_epilogue,
)
from pockengine.tests.backends.c.harness import device_of
from pockengine.tests.backends.c.problems import DIRECT, SETTINGS, convolution
from pockengine.tests.backends.c.winograd_cases import (
    FEATURES,
    PADDINGS,
    PICTURES,
    SIZES,
    cheapest,
    check_any,
)

BOUND = {2: 1.7 * DIRECT, 4: 31 * DIRECT}
"""Maximum error by r, relative to the largest result."""


def emit(size: int, split: str | None = None, block: int | None = None) -> Callable[..., Kernel]:
    """Return an emitter of the cheapest plan of a tile size, changed by the test's arguments."""

    def kernel(node: Node, device: Device) -> Kernel:
        opened = open_fusion(node, device)
        window = window_of(opened.anchor)
        plans = winograd_plans(window, opened.anchor.op == "conv2d_dx", device, (size,))
        plan = cheapest(plans, split, block)
        return winograd_kernel(opened, window, plan, device)

    return kernel


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """A 3x3 convolution of stride 1 or its input gradient, with any size and padding."""
    x = draw(PICTURES)
    channels = draw(st.sampled_from([1, 3, 8, 15, 16, 33]))
    kernel = (3, 3, channels, draw(FEATURES))
    found = convolution((*x, channels), kernel, padding=draw(PADDINGS))
    epilogue = draw(st.sampled_from(["bare", "residual", "gate", "masked"]))
    return with_epilogue(found[draw(st.sampled_from(["forward", "dx"]))], epilogue)


@pytest.mark.parametrize(("size", "isa"), SIZES)
def test_any_geometry_agrees_under_sanitizers(size: int, isa: str, tmp_path: Path) -> None:
    check_any(nodes(), ["ROWS", "COLUMNS"], partial(emit, size), isa, tmp_path, BOUND[size])


@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.nightly), 4])
def test_whole_layers_agree(size: int, tmp_path: Path) -> None:
    """Several panels, blocks that end within an image, and channels beyond one pitch."""
    same = (1, 1, 1, 1)
    large = [
        *convolution((3, 13, 15, 256), (3, 3, 256, 100), padding=same).values(),
        *convolution((2, 28, 28, 64), (3, 3, 64, 64), padding=same).values(),
    ]
    layers = [node for node in large if node.op != "conv2d_dw"]
    cases = [
        case_of(node, emit(size, split), "avx512", seed)
        for seed, node in enumerate(layers)
        for split in ("ROWS", "COLUMNS")
    ]
    check_optimized(cases, tmp_path, tolerance=BOUND[size])


@settings(max_examples=1, **SETTINGS)
@given(drawn=st.lists(nodes(), min_size=6, max_size=6))
def test_any_geometry_agrees_on_arm(
    drawn: list[Node], tmp_path_factory: pytest.TempPathFactory
) -> None:
    cases = [case_of(node, emit(4), "neon", seed) for seed, node in enumerate(drawn)]
    check_on_arm(cases, tmp_path_factory.mktemp("kernels"), tolerance=BOUND[4])


@pytest.mark.parametrize(
    "geometry",
    [{"stride": (2, 1)}, {"dilation": (1, 2)}, {"groups": 2}],
    ids=["stride", "dilation", "groups"],
)
def test_other_convolutions_have_no_plan(geometry: dict[str, Any]) -> None:
    groups = geometry.get("groups", 1)
    found = convolution((1, 9, 9, 8), (3, 3, 8 // groups, 8), **geometry)
    assert not winograd_plans(window_of(found["forward"]), False, device_of("avx2"))
