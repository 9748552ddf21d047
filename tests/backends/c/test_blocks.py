"""Generated code decodes weights stored in blocks, alone and in products, as the oracle does."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.c.backend import CBackend
from pockengine.backends.c.products.attention import LONGEST
from pockengine.backends.native.kernel import align
from pockengine.compiler.ir import Builder, DType, Graph, Node, TensorType
from pockengine.compiler.ir.blocks import Blocks
from pockengine.compiler.ir.scalars import converted
from pockengine.compiler.ir.types import F32, f32
from pockengine.tests.backends.c.anchors import (
    backend_kernel,
    case_of,
    check,
    check_on_arm,
    check_optimized,
    with_epilogue,
)
from pockengine.tests.backends.c.bf16 import bf16_kernel, small_cache, to_bf16, with_tiles
from pockengine.tests.backends.c.harness import (
    OF_TWO_CORES,
    SANITIZED,
    Case,
    device_of,
    draw_array,
    run_cases,
)

BITS = (4, 8)
SHAPES = [((32,), 0), ((96, 7), 0), ((2, 64, 130), 1), ((5, 64), 1), ((3, 2, 320), 2)]


@pytest.mark.parametrize("isa", ["sse2", "avx2"])
def test_every_axis_and_width_agrees_with_the_oracle(isa: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    cases = []
    for bits in BITS:
        for shape, axis in SHAPES:
            blocks = Blocks(bits, axis)
            numbers = rng.standard_normal(shape).astype(np.float32) * np.exp2(
                rng.integers(-20, 12, shape)
            ).astype(np.float32)
            codes, scales = blocks.encode(numbers)
            types = blocks.types(shape)
            g = Builder(Graph("case"))
            operands = (g.input(name, type_) for name, type_ in zip("cs", types, strict=True))
            node = g.emit("decode_blocks", *operands, bits=bits, axis=axis)
            cases.append(Case(node, CBackend(device_of(isa)).kernel(node), (codes, scales)))
    results = run_cases(cases, tmp_path, ("gcc", *SANITIZED, "-march=native"))
    for case, runs in zip(cases, results, strict=True):
        for (result,) in runs:
            np.testing.assert_array_equal(result, case.expected[0], err_msg=repr(case.node))


PRODUCTS = [
    ((1,), 160, 96, "bare"),
    ((1,), 61, 64, "residual"),
    ((1, 1), 33, 288, "gate"),
    ((2, 4), 35, 64, "bias_relu6"),
    ((3,), 65, 32, "two_results"),
    ((2, 3), 16, 64, "bare"),
    ((5,), 50, 64, "masked"),
    ((9,), 61, 96, "residual"),
    ((2, 9), 33, 64, "bare"),
    ((33,), 130, 608, "gate"),  # in two blocks of steps
    ((21,), 40, 1024, "bias_relu6"),  # threads share the steps
    ((12,), 16, 64, "stepped"),
    ((410,), 96, 64, "two_results"),
]
"""Rows, columns, depth, and epilogue: an odd number, so each meets four of the ways."""

Product = tuple[tuple[int, ...], int, int, str]

WAYS = [*itertools.product((4, 8), (False, True), (True, False))]
"""Bits, whether the weight is transposed, and whether the blocks lie along the sum."""


def product_case(product: Product, way: tuple[int, bool, bool]) -> tuple[Node, Blocks]:
    """Return a product that decodes its weight; blocks along its columns are whole ones."""
    rows, columns, depth, epilogue = product
    bits, transposed, along_sum = way
    columns = columns if along_sum else align(columns, 32)
    blocks = Blocks(bits, int(transposed == along_sum))
    types = blocks.types((columns, depth) if transposed else (depth, columns))
    g = Builder(Graph("case"))
    a = g.input("a", f32(*rows, depth))
    stored = [g.input(name, type_) for name, type_ in zip("cs", types, strict=True)]
    weight = g.decode_blocks(*stored, bits=bits, axis=blocks.axis)
    return with_epilogue(g.matmul(a, weight, transpose_b=transposed).node, epilogue), blocks


def coded_case(node: Node, blocks: Blocks, isa: str, seed: int) -> Case:
    """Draw a product's operands: numbers, and the codes and scales of others."""
    rng = np.random.default_rng(seed)
    operands = [draw_array(rng, value) for value in node.operands]
    shape = blocks.shape(operands[1].shape)
    operands[1:3] = blocks.encode(rng.standard_normal(shape).astype(np.float32))
    return Case(node, CBackend(device_of(isa)).kernel(node), tuple(operands))


@pytest.mark.parametrize("isa", ["sse2", "avx2", "avx512", "neon"])
def test_products_with_codes_agree_with_the_oracle(isa: str, tmp_path: Path) -> None:
    cases = []
    for seed, (product, way) in enumerate(zip(PRODUCTS * 4, itertools.cycle(WAYS), strict=False)):
        cases.append(coded_case(*product_case(product, way), isa, seed))
    (check_on_arm if isa == "neon" else check)(cases, tmp_path)


@pytest.mark.parametrize("isa", ["sse2", "avx2", "neon"])
def test_products_of_transposed_rows_agree_with_the_oracle(isa: str, tmp_path: Path) -> None:
    """DoRA's, and those of several matrices with one weight."""
    cases = []
    for seed, ((bits, transposed, along_sum), rows) in enumerate(
        itertools.product(WAYS, [(64, 4), (3, 64, 5)])
    ):
        blocks = Blocks(bits, int(transposed == along_sum))
        types = blocks.types((96, 64) if transposed else (64, 96))
        g = Builder(Graph("case"))
        a = g.input("a", f32(*rows))
        stored = [g.input(name, type_) for name, type_ in zip("cs", types, strict=True)]
        weight = g.decode_blocks(*stored, bits=bits, axis=blocks.axis)
        product = g.matmul(a, weight, transpose_a=True, transpose_b=transposed)
        cases.append(coded_case(with_epilogue(product.node, "bare"), blocks, isa, seed))
    (check_on_arm if isa == "neon" else check)(cases, tmp_path)


HALVES = [*itertools.product((DType.BF16, DType.F16), (False, True))]
"""Type of the weight, and whether it is transposed."""


def widening_case(product: Product, way: tuple[DType, bool]) -> Node:
    rows, columns, depth, epilogue = product
    dtype, transposed = way
    g = Builder(Graph("case"))
    a = g.input("a", f32(*rows, depth))
    shape = (columns, depth) if transposed else (depth, columns)
    weight = g.cast(g.input("x", TensorType(dtype, shape)), dtype="f32")
    return with_epilogue(g.matmul(a, weight, transpose_b=transposed).node, epilogue)


@pytest.mark.parametrize("isa", ["sse2", "avx2", "avx512", "neon"])
def test_products_with_halves_agree_with_the_oracle(isa: str, tmp_path: Path) -> None:
    ways = zip(PRODUCTS * 2, itertools.cycle(HALVES), strict=False)
    nodes = [widening_case(product, way) for product, way in ways]
    cases = [case_of(node, backend_kernel, isa, seed) for seed, node in enumerate(nodes)]
    (check_on_arm if isa == "neon" else check)(cases, tmp_path)


LARGE = [((20,), 61, 64, "residual"), ((33,), 96, 608, "gate"), ((2, 9), 35, 96, "bare")]
TILED = [((2, 35), 61, 64, "residual"), ((33,), 160, 608, "gate")]
"""Products with enough rows for tiles of a matrix unit: with more rows than columns, and of several
blocks of columns and steps.
"""


def rounded_operands(product: Product, seed: int) -> list[tuple[Node, tuple[np.ndarray, ...]]]:
    """Return a product in all ways, on bf16 numbers, and codes with scales that are powers of two:
    only sums are rounded.
    """
    drawn, rng = [], np.random.default_rng(seed)
    for way in WAYS:
        node = product_case(product, way)[0]
        a, codes, scales, *others = (draw_array(rng, value) for value in node.operands)
        codes = rng.integers(-127, 128, codes.shape).astype(codes.dtype)
        scales = np.exp2(rng.integers(-9, -4, scales.shape)).astype(np.float16)
        drawn.append((node, (to_bf16(a), codes, scales, *others)))
    for halves in HALVES:
        node = widening_case(product, halves)
        a, x, *others = (draw_array(rng, value) for value in node.operands)
        x = converted(to_bf16(converted(x, F32)), halves[0])
        drawn.append((node, (to_bf16(a), x, *others)))
    return drawn


@pytest.mark.parametrize("run", [check_optimized, check], ids=["optimized", "sanitized"])
@pytest.mark.parametrize("tiles", [False, True], ids=["vectors", "tiles"])
def test_bf16_products_with_stored_weights_sum_in_f32(
    tiles: bool, run: Callable[..., None], tmp_path: Path
) -> None:
    device = small_cache(with_tiles("avx512")) if tiles else device_of("avx512")
    products = enumerate(TILED if tiles else LARGE)
    drawn = [each for seed, product in products for each in rounded_operands(product, seed)]
    cases = [Case(node, bf16_kernel(node, device), operands) for node, operands in drawn]
    assert all(("_amx__" in case.kernel.symbol) == tiles for case in cases)
    assert all("pe_bf16" in case.kernel.symbol for case in cases)
    run(cases, tmp_path, **({"threads": OF_TWO_CORES} if tiles else {}))


@pytest.mark.parametrize(("columns", "in_place"), [(32, 1), (33, 0)])
def test_pairs_are_read_in_place_if_they_are_aligned(columns: int, in_place: int) -> None:
    """A weight that is not whole cache lines may follow one of an odd number of elements."""
    node = widening_case(((20,), columns, 34, "bare"), (DType.BF16, True))
    source = bf16_kernel(node, device_of("avx512")).source
    assert f"#define PE_B_IN_PLACE {in_place}\n" in source


def test_weights_are_decoded_inside_products_and_attention_is_fused() -> None:
    for backend in (CBackend(device_of("avx2")), CBackend(with_tiles("avx512"), bf16=True)):
        assert backend.target().fusion.decoding == {"matmul"}
        assert backend.target().attention == LONGEST
