"""Generated matmul kernels agree with the NumPy oracle, for all shapes, epilogues and teams."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pockengine.backends.c.backend import CBackend
from pockengine.backends.c.elementwise.epilogue import row_offset
from pockengine.backends.c.products.gemm import MATMUL, batch_offset
from pockengine.backends.c.products.product import plan_product
from pockengine.backends.c.products.product_shape import product_of
from pockengine.backends.c.tile import machine_of, tiles
from pockengine.backends.native.numbers import closed
from pockengine.compiler.ir import Node
from pockengine.compiler.ir.types import f32
from pockengine.devices.schema import load_device
from pockengine.errors import CompileError
from pockengine.tests.backends.c.anchors import (
    SIZES,
    X86,
    case_of,
    check,
    check_on_arm,
    check_optimized,
    check_with_zig,
    epilogues,
    with_epilogue,
)
from pockengine.tests.backends.c.bf16 import bf16_kernel, small_cache, to_bf16, with_tiles
from pockengine.tests.backends.c.harness import (
    OF_TWO_CORES,
    OPTIMIZED,
    Case,
    device_of,
    emitter,
    new_builder,
    run_cases,
)
from pockengine.tests.backends.c.problems import SETTINGS, matmul

matmul_kernel = emitter(MATMUL)

BATCHES = [((), ()), ((3,), ()), ((3,), (3,)), ((), (3,)), ((2, 3), (3,)), ((2, 1), (1, 2))]


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    transpose = draw(st.tuples(st.booleans(), st.booleans()))
    batches = draw(st.sampled_from([*BATCHES, ((), ()), ((), ())]))
    node = matmul(draw(SIZES), draw(SIZES), draw(SIZES), transpose, batches)
    return with_epilogue(node, draw(epilogues))


@settings(max_examples=4, **SETTINGS)
@given(drawn=st.lists(nodes(), min_size=12, max_size=16), isa=st.sampled_from(X86))
def test_any_shape_agrees_under_sanitizers(
    drawn: list[Node], isa: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cases = [case_of(node, matmul_kernel, isa, seed) for seed, node in enumerate(drawn)]
    check(cases, tmp_path_factory.mktemp("kernels"))


@settings(max_examples=2, **SETTINGS)
@given(drawn=st.lists(nodes(), min_size=16, max_size=16))
def test_any_shape_agrees_on_arm(
    drawn: list[Node], tmp_path_factory: pytest.TempPathFactory
) -> None:
    cases = [case_of(node, matmul_kernel, "neon", seed) for seed, node in enumerate(drawn)]
    check_on_arm(cases, tmp_path_factory.mktemp("kernels"))


LONG_SUMS = [
    matmul(33, 50, 1000),  # two blocks of the inner dimension, the last one shorter
    with_epilogue(matmul(33, 50, 1000), "residual"),  # unfinished sums are in scratch
    with_epilogue(matmul(9, 20, 1000, (False, True)), "bias_relu6"),
    matmul(24, 40, 1700, (True, False)),  # threads share the inner dimension
    with_epilogue(matmul(24, 40, 1700, (True, False)), "two_results"),
    with_epilogue(matmul(5, 1001, 700, (True, True), ((2,), (2,))), "gate"),
    matmul(2, 30, 2048),  # rows of A that map to the same cache sets
    matmul(1, 300, 200),
    matmul(1, 300, 200, (False, True)),
]


def test_panels_of_rows_that_share_cache_sets_are_copied(tmp_path: Path) -> None:
    nodes = [matmul(130, 2048, 33), matmul(70, 1024, 500, (True, False)), matmul(130, 1024, 33)]
    cases = [case_of(node, matmul_kernel, "avx512", seed) for seed, node in enumerate(nodes)]
    assert all("#define PE_B_COPIED 1\n" in case.kernel.source for case in cases)
    for node in (matmul(130, 2000, 33), matmul(9, 2048, 33)):
        assert "#define PE_B_COPIED 0\n" in matmul_kernel(node, device_of("avx512")).source
    check(cases, tmp_path)


@pytest.mark.parametrize("isa", ["sse2", "neon"])
def test_narrow_cores_copy_panels_that_exceed_their_cache(isa: str, tmp_path: Path) -> None:
    nodes = [
        matmul(49, 250, 160),
        with_epilogue(matmul(30, 65, 600), "residual"),  # two blocks of the inner dimension
        with_epilogue(matmul(50, 97, 196, (True, False)), "gate"),
        matmul(40, 30 if isa == "neon" else 14, 1000),  # two panels in all
    ]
    cases = [case_of(node, matmul_kernel, isa, seed, cores=2) for seed, node in enumerate(nodes)]
    copied = [re.search(r"PE_B_COPIED (\d)\n", case.kernel.source) for case in cases]
    assert [found and int(found[1]) for found in copied] == [4, 4, 4, 2]
    few = matmul(9, 24, 200) if isa == "neon" else matmul(9, 250, 160)
    for node in (matmul(49, 90, 40), few, matmul(49, 250, 160, (False, True))):
        assert "#define PE_B_COPIED 0\n" in matmul_kernel(node, device_of(isa, 2)).source
    (check_on_arm if isa == "neon" else check)(cases, tmp_path)


def test_a_block_is_few_tiles_if_the_cache_holds_the_second_operand(tmp_path: Path) -> None:
    device, nodes = device_of("neon"), [matmul(49, 90, 40), matmul(50, 1000, 4, (True, False))]
    plans = [plan_product(product_of(node), device).plan for node in nodes]
    assert all(plan.rows <= 4 * plan.tile.rows < 49 for plan in plans)
    wide = plan_product(product_of(nodes[0]), device_of("avx2")).plan
    assert wide.rows > wide.tile.rows
    cases = [case_of(node, matmul_kernel, "neon", seed) for seed, node in enumerate(nodes)]
    check_on_arm(cases, tmp_path)


def test_steps_by_eight_by_four_and_alone_agree_on_arm(tmp_path: Path) -> None:
    depths = (3, 4, 7, 8, 12, 13, 16, 23)
    nodes = [matmul(13, columns, depth) for columns in (8, 12, 48) for depth in depths]
    cases = [case_of(node, matmul_kernel, "neon", seed) for seed, node in enumerate(nodes)]
    check_on_arm(cases, tmp_path)


@pytest.mark.parametrize("isa", ["sse2", "avx2", "neon"])
def test_rows_whose_steps_lie_apart_are_copied(isa: str, tmp_path: Path) -> None:
    transposed = (True, False)
    nodes = [
        matmul(301, 200, 700, transposed),
        with_epilogue(matmul(260, 256, 600, transposed), "residual"),
        matmul(300, 200, 33, transposed, ((2,), (2,))),
    ]
    cases = [case_of(node, matmul_kernel, isa, seed) for seed, node in enumerate(nodes)]
    assert all("#define PE_A_COPIED 1\n" in case.kernel.source for case in cases)
    for node in (matmul(100, 200, 700, transposed), matmul(301, 200, 700)):
        assert "PE_A_COPIED" not in matmul_kernel(node, device_of(isa)).source
    (check_on_arm if isa == "neon" else check)(cases, tmp_path)


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
@pytest.mark.parametrize("run", [check_optimized, check], ids=["optimized", "sanitized"])
def test_rows_that_meet_many_panels_are_copied(
    isa: str, run: Callable[..., None], tmp_path: Path
) -> None:
    few = [matmul(rows, 2048, steps) for rows, steps in ((9, 3), (13, 15), (14, 16), (10, 17))]
    nodes = [
        *few,
        matmul(41, 2100, 33, (False, True)),
        with_epilogue(matmul(37, 2048, 700), "residual"),  # its last block of steps is shorter
        matmul(530, 1600, 520),  # two blocks of rows
        matmul(17, 2048, 40, batches=((3,), (3,))),
    ]
    cases = [case_of(node, matmul_kernel, isa, seed, cores=2) for seed, node in enumerate(nodes)]
    assert all("#define PE_A_COPIED 1\n" in case.kernel.source for case in cases)
    for node in (matmul(8, 2048, 33), matmul(37, 200, 700)):
        assert "PE_A_COPIED" not in matmul_kernel(node, device_of(isa, 2)).source
    run(cases, tmp_path, threads=OF_TWO_CORES)


@pytest.mark.parametrize("isa", ["sse2", "avx2", "avx512", "neon"])
def test_few_rows_read_a_large_matrix_row_by_row(isa: str, tmp_path: Path) -> None:
    machine = machine_of(device_of(isa))
    most = 8 if machine.lanes > 4 or machine.by_lane else 4
    nodes = [
        with_epilogue(matmul(1, 1003, 267), "residual"),
        with_epilogue(matmul(3, 1029, 256), "two_results"),
        with_epilogue(matmul(most, 257, 1023), "gate"),
        matmul(2, 4096, 65),
        *[matmul(5, 70, 191)] * machine.by_lane,
    ]
    cases = [case_of(node, matmul_kernel, isa, seed) for seed, node in enumerate(nodes)]
    assert all("gemm_stream.inc.h" in case.kernel.source for case in cases)
    small = matmul(1, 1000, 8 if machine.by_lane else 262)
    many = matmul(most + 1, 1003, 267)
    for node in (small, many, matmul(1, 1003, 267, (False, True))):
        assert "gemm_stream.inc.h" not in matmul_kernel(node, device_of(isa)).source
    (check_on_arm if isa == "neon" else check)(cases, tmp_path)


def test_a_panel_beyond_the_first_cache_costs_more() -> None:
    product = product_of(matmul(512, 768, 768, (False, True)))
    plan = plan_product(product, device_of("avx2", 2)).plan
    assert (plan.tile.rows, plan.tile.columns, plan.rows_copied) == (6, 16, True)


def test_a_matrix_times_itself_is_passed_twice(tmp_path: Path) -> None:
    g = new_builder()
    a = g.input("a", f32(24, 24))
    node = g.emit("matmul", a, a)
    check([case_of(node, matmul_kernel, "avx2", 0)], tmp_path)


def bf16_case(node: Node, seed: int) -> Case:
    """A case with bf16 numbers as operands, so that only sums are rounded."""
    case = case_of(node, bf16_kernel, "avx512", seed)
    assert "pe_bf16" in case.kernel.symbol
    return replace(case, operands=tuple(to_bf16(operand) for operand in case.operands))


@pytest.mark.parametrize("run", [check_optimized, check], ids=["optimized", "sanitized"])
def test_bf16_products_sum_in_f32(run: Callable[..., None], tmp_path: Path) -> None:
    transposes = [(a, b) for a in (False, True) for b in (False, True)]
    shapes = [(17, 33, 65), (48, 40, 1001), (600, 50, 700)]
    nodes = [matmul(*shape, transpose) for shape in shapes for transpose in transposes]
    nodes += [with_epilogue(matmul(40, 33, 1999), "residual"), matmul(24, 40, 1700, (True, False))]
    cases = [bf16_case(node, seed) for seed, node in enumerate(nodes)]
    run(cases, tmp_path)


def test_bf16_operands_are_rounded_to_nearest_even(tmp_path: Path) -> None:
    node = matmul(64, 32, 32)
    case = case_of(node, bf16_kernel, "avx512", 0)
    x = case.operands[0].astype(np.float32)
    x[0, :4] = np.array([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 0], np.float32)  # ties
    x[1, :2] = [np.nan, np.inf]
    case = replace(case, operands=(x, np.eye(32, dtype=np.float32)))
    found = run_cases([case], tmp_path, ("gcc", *OPTIMIZED, "-march=native"))[0][0][0]
    assert np.isnan(found[1]).all()  # a NaN, and infinity times zero
    np.testing.assert_array_equal(np.delete(found, 1, 0), to_bf16(np.delete(x, 1, 0)))


def amx_case(node: Node, seed: int) -> Case:
    device = small_cache(with_tiles("avx512")) if seed % 2 else with_tiles("avx512")
    case = case_of(node, lambda each, _: bf16_kernel(each, device), "avx512", seed)
    assert "_amx__" in case.kernel.symbol
    return replace(case, operands=tuple(to_bf16(operand) for operand in case.operands))


def tiled_cases() -> list[Case]:
    transposes = [(a, b) for a in (False, True) for b in (False, True)]
    shapes = [(32, 32, 32), (33, 50, 65), (65, 33, 40), (40, 1000, 97)]
    nodes = [matmul(*shape, transpose) for shape in shapes for transpose in transposes]
    nodes += [with_epilogue(matmul(40, 47, 1999), name) for name in ("residual", "two_results")]
    nodes += [matmul(40, 33, 70, transpose, ((3,), (3,))) for transpose in transposes]
    nodes.append(with_epilogue(matmul(32, 64, 32, batches=((2, 3), (3,))), "residual"))
    cases = [amx_case(node, seed) for seed, node in enumerate(nodes)]
    in_blocks = [matmul(300, 64, 700, each) for each in transposes]
    in_blocks += [matmul(40, 200, 300), matmul(40, 50, 600, batches=((2,), (2,)))]
    return cases + [amx_case(node, 1) for node in in_blocks]


@pytest.mark.parametrize("run", [check_optimized, check], ids=["optimized", "sanitized"])
def test_tiles_of_bf16_sum_in_f32(run: Callable[..., None], tmp_path: Path) -> None:
    run(tiled_cases(), tmp_path, threads=OF_TWO_CORES)


@pytest.mark.skipif(not load_device("host").cpu.amx, reason="this CPU has no tiles of bf16")
def test_the_machines_own_tiles_sum_in_f32(tmp_path: Path) -> None:
    check_with_zig(tiled_cases(), tmp_path, "host")


@pytest.mark.parametrize(("rows", "columns"), [(40, 200), (200, 40)])
def test_blocks_of_lines_and_steps_stay_in_the_cache(rows: int, columns: int) -> None:
    """The longer operand is packed by each thread, in blocks of half the second-level cache."""
    case = amx_case(matmul(rows, columns, 700), seed=1)
    for name, value in ("OWN_ROWS", int(rows > columns)), ("OWN_LINES", 64), ("KB", 32):
        assert f"#define PE_{name} {value}\n" in case.kernel.source


def test_small_products_keep_f32() -> None:
    for node in (matmul(8, 64, 64), matmul(64, 64, 8), matmul(64, 64, 64, batches=((3,), (3,)))):
        assert "pe_f32" in bf16_kernel(node, device_of("avx512")).symbol


def test_a_device_without_bf16_is_refused() -> None:
    with pytest.raises(CompileError, match=r"rpi4 .* has no bf16 products"):
        CBackend(load_device("rpi4"), bf16=True)


@pytest.mark.parametrize("run", [check_optimized, check], ids=["optimized", "sanitized"])
def test_long_sums_are_finished_before_the_epilogue(
    run: Callable[..., None], tmp_path: Path
) -> None:
    cases = [case_of(node, matmul_kernel, "avx512", seed) for seed, node in enumerate(LONG_SUMS)]
    run(cases, tmp_path)


def test_results_larger_than_the_caches_are_streamed(tmp_path: Path) -> None:
    device = device_of("avx512")
    small = replace(device, processor=replace(device.cpu, l3_bytes=4096))
    cases = []
    biased = with_epilogue(matmul(40, 80, 80), "bias_relu6")  # its operand is no smaller
    for seed, node in enumerate([matmul(33, 48, 20), biased]):
        case = case_of(node, lambda each, _: matmul_kernel(each, small), "avx512", seed)
        assert "pe_stream_part" in case.kernel.source
        assert "pe_stream_part" not in matmul_kernel(node, device).source
        cases.append(case)
    check_with_zig(cases, tmp_path, "host")
    # The result may overwrite the residual, whose lines are in the cache.
    residual = matmul_kernel(with_epilogue(matmul(40, 80, 9), "residual"), small)
    assert "pe_stream_part" not in residual.source


def test_weight_gradients_share_the_inner_dimension() -> None:
    product = product_of(matmul(96, 24, 12544, (True, False)))
    assert plan_product(product, device_of("avx512")).plan.split == "INNER"


def test_batches_are_strides() -> None:
    assert batch_offset((), 6) == "0"
    same, broadcast = (
        product_of(matmul(2, 3, 4, batches=((2, 3), other))) for other in ((2, 3), (2, 1))
    )
    assert batch_offset(same.b_batch, 6) == "(i) * (ptrdiff_t)12"
    assert batch_offset(broadcast.b_batch, 6) == "((i) / 3 % 2 * 12)"


def test_rows_of_one_weight_matrix_are_one_product() -> None:
    product = product_of(matmul(5, 7, 11, batches=((4, 3), ())))
    assert (product.m, product.batch) == (60, 1)


@pytest.mark.parametrize("isa", ["avx512", "avx2", "sse2", "neon"])
def test_tiles_fit_into_the_registers(isa: str) -> None:
    machine = machine_of(device_of(isa))
    for tile in tiles(machine, 100, 1000, row_stride=64):
        loaded = tile.rows if isa == "neon" else 1  # four steps of each row at once
        assert tile.rows * tile.vectors + tile.vectors + loaded < machine.registers


@pytest.mark.parametrize(
    ("operand", "offset"),
    [
        ((24,), "0"),
        ((2, 3, 24), "row * 24"),
        ((2, 1, 24), "row / 3 * 24"),
        ((3, 1), "row % 3 * 1"),
    ],
)
def test_row_offsets_broadcast(operand: tuple[int, ...], offset: str) -> None:
    assert closed(row_offset(operand, (2, 3, 24))) == offset


def test_a_fusion_that_hands_an_operand_on_is_refused() -> None:
    node = with_epilogue(matmul(4, 4, 4), "residual")
    body = node.attrs["body"]
    body.outputs = {"y0": body.inputs[0]}
    with pytest.raises(CompileError, match="which it does not compute"):
        matmul_kernel(node, device_of("avx2"))
