"""Generated convolutions, their gradients and their depthwise forms agree with the NumPy oracle."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pockengine.backends.c.convolutions.conv import CONVOLUTION
from pockengine.backends.c.convolutions.depthwise import (
    DepthwiseSpec,
    choose_depthwise,
    row_blocks,
    slide_backward,
    slide_forward,
)
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.c.tile import machine_of
from pockengine.backends.native.kernel import Kernel
from pockengine.backends.window import backward_grids, tap_order, window_of
from pockengine.compiler.ir import Node
from pockengine.devices.schema import Device
from pockengine.errors import GraphError
from pockengine.tests.backends.c.anchors import (
    X86,
    case_of,
    check,
    check_on_arm,
    check_optimized,
    epilogues,
    with_epilogue,
)
from pockengine.tests.backends.c.harness import OPTIMIZED, device_of, emitter
from pockengine.tests.backends.c.problems import SETTINGS, convolution

conv_kernel = emitter(CONVOLUTION)
direct_kernel = emitter(CONVOLUTION, KernelOptions(winograd=False))


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
pads = st.tuples(*[st.integers(0, 3)] * 4)


@st.composite
def nodes(draw: st.DrawFn, depthwise: bool) -> Node:
    """One of the three ops, with any geometry that has at least one output pixel."""
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    group_channels = draw(st.sampled_from([1, 3, 4, 8, 17, 33]))
    features = groups * draw(st.sampled_from([1, 4, 5, 16, 24, 49]))
    if depthwise:
        groups = features = draw(st.sampled_from([1, 3, 8, 15, 16, 17, 24, 40, 67]))
        group_channels = 1
    x = (*draw(st.tuples(st.integers(1, 2), st.integers(1, 19), st.integers(1, 19))),)
    kernel = draw(st.sampled_from([(1, 1), (3, 3), (3, 3), (5, 5), (7, 7), (2, 3), (1, 4)]))
    try:
        found = convolution(
            (*x, groups * group_channels),
            (*kernel, group_channels, features),
            draw(pairs),
            draw(pads),
            draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (2, 3)])),
            groups,
        )
    except GraphError:
        assume(False)
    return with_epilogue(found[draw(st.sampled_from(sorted(found)))], draw(epilogues))


@pytest.mark.parametrize("depthwise", [False, True], ids=["general", "depthwise"])
def test_any_geometry_agrees_under_sanitizers(
    depthwise: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(max_examples=3, **SETTINGS)
    @given(drawn=st.lists(nodes(depthwise), min_size=12, max_size=16), isa=st.sampled_from(X86))
    def agrees(drawn: list[Node], isa: str) -> None:
        cases = [case_of(node, direct_kernel, isa, seed) for seed, node in enumerate(drawn)]
        check(cases, tmp_path_factory.mktemp("kernels"))

    agrees()


@settings(max_examples=2, **SETTINGS)
@given(
    general=st.lists(nodes(False), min_size=8, max_size=8),
    depthwise=st.lists(nodes(True), min_size=8, max_size=8),
)
def test_any_geometry_agrees_on_arm(
    general: list[Node], depthwise: list[Node], tmp_path_factory: pytest.TempPathFactory
) -> None:
    drawn = [*general, *depthwise]
    cases = [case_of(node, direct_kernel, "neon", seed) for seed, node in enumerate(drawn)]
    check_on_arm(cases, tmp_path_factory.mktemp("kernels"))


def large() -> Iterator[Node]:
    """Shapes with several blocks of pixels, taps and channels."""
    yield from convolution((1, 7, 7, 160), (3, 3, 160, 100), padding=(1, 1, 1, 1)).values()
    yield from convolution((1, 9, 9, 130), (3, 3, 130, 192), (2, 2), (1, 1, 1, 1)).values()
    found = convolution((1, 40, 40, 40), (3, 3, 40, 48), padding=(1, 1, 1, 1))
    yield from (with_epilogue(node, "residual") for node in found.values())
    yield from convolution((1, 23, 21, 3), (3, 3, 3, 32), (2, 2), (1, 1, 1, 1)).values()
    found = convolution((2, 7, 7, 600), (3, 3, 1, 600), padding=(1, 1, 1, 1), groups=600)
    yield from (with_epilogue(node, "bias_relu6") for node in found.values())
    yield from convolution((3, 6, 6, 40), (1, 1, 40, 70)).values()
    found = convolution((1, 7, 7, 300), (3, 3, 300, 260), padding=(1, 1, 1, 1))
    yield from (with_epilogue(node, "two_results") for node in found.values())


def test_blocks_join_up(tmp_path: Path) -> None:
    cases = [case_of(node, direct_kernel, "avx512", seed) for seed, node in enumerate(large())]
    check_optimized(cases, tmp_path)


def test_long_rows_of_taps_are_not_unrolled(tmp_path: Path) -> None:
    """Depthwise blocks of 200 taps would take the compiler minutes."""
    found = convolution((1, 1, 300, 3), (1, 200, 1, 3), padding=(0, 0, 99, 100), groups=3)
    cases = [case_of(node, direct_kernel, "avx2", seed) for seed, node in enumerate(found.values())]
    assert max(len(case.kernel.source) for case in cases) < 20_000
    check(cases, tmp_path, ("gcc", *OPTIMIZED, "-march=x86-64-v3"))


def test_large_weight_gradients_take_several_images(tmp_path: Path) -> None:
    """Three images in blocks of two."""
    node = convolution((3, 4, 4, 352), (3, 3, 352, 352), (2, 2), (1, 1, 1, 1))["dw"]

    def emit(node: Node, device: Device) -> Kernel:
        return direct_kernel(node, replace(device, processor=replace(device.cpu, l3_bytes=600_000)))

    case = case_of(node, emit, "avx512", 0)
    assert "#define PE_BLOCK_IMAGES 2\n" in case.kernel.source
    check_optimized([case], tmp_path)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_windows_that_see_padding_alone_have_zero_gradients(groups: int, tmp_path: Path) -> None:
    problems = [((2, 2, 2, 6), (3, 3)), ((1, 3, 3, 6), (4, 4)), ((2, 2, 3, 6), (3, 1))]
    cases = [
        case_of(node, direct_kernel, "avx2", 0)
        for x, stride in problems
        for node in convolution(
            x, (1, 1, 6 // groups, 6), stride, (1,) * 4, (1, 1), groups
        ).values()
    ]
    check(cases, tmp_path)


def test_every_tap_belongs_to_one_grid_of_the_input_gradient() -> None:
    found = convolution((1, 9, 8, 4), (5, 3, 4, 4), (2, 3), (2, 2, 1, 1))
    window = window_of(found["dx"])
    grids = backward_grids(window)
    assert sorted(tap_order(window, grids)) == list(range(15))
    assert sum(grid.positions for grid in grids) == 9 * 8


@pytest.mark.parametrize(("channels", "lanes", "pixels"), [(24, 8, 5), (12, 4, 10), (3, 4, 10)])
def test_neon_takes_two_vectors_of_channels_where_none_is_padded(
    channels: int, lanes: int, pixels: int
) -> None:
    found = convolution((1, 12, 12, channels), (3, 3, 1, channels), groups=channels)
    choice = choose_depthwise("conv2d", window_of(found["forward"]), device_of("neon"))
    spec = choice.spec
    assert isinstance(spec, DepthwiseSpec)
    assert (spec.lanes, spec.slide.block) == (lanes, pixels)


def test_blocks_of_a_row_cover_it_once() -> None:
    found = convolution((1, 9, 37, 8), (3, 3, 1, 8), (1, 2), (1, 1, 1, 1), groups=8)
    for slide in (
        slide_forward(window_of(found["forward"]), machine_of(device_of("neon")), 8),
        slide_backward(window_of(found["dx"]), machine_of(device_of("avx2")), 8),
    ):
        begin, end, edges = row_blocks(slide)
        columns = [*range(begin, end)]
        columns += [start + i for start, pixels, _, _ in edges for i in range(pixels)]
        assert sorted(columns) == list(range(slide.result[1]))
