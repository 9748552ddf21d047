"""Generated code decodes weights stored in blocks, and multiplies them, as the oracle does."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.c.backend import CBackend
from pockengine.compiler.ir import Builder, Graph, Node
from pockengine.compiler.ir.blocks import Blocks
from pockengine.compiler.ir.types import f32
from pockengine.errors import GraphError
from pockengine.tests.backends.c.anchors import check, check_on_arm, with_epilogue
from pockengine.tests.backends.c.harness import SANITIZED, Case, device_of, draw_array, run_cases

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
            cases.append(Case(node, CBackend(device_of(isa, 3)).kernel(node), (codes, scales)))
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
]
"""Rows, columns, depth, and epilogue: an odd number, so each one meets two of four ways."""


def product_case(product: tuple[tuple[int, ...], int, int, str], way: tuple[int, bool]) -> Node:
    rows, columns, depth, epilogue = product
    bits, transposed = way
    axis = 1 if transposed else 0
    types = Blocks(bits, axis).types((columns, depth) if transposed else (depth, columns))
    g = Builder(Graph("case"))
    operands = [g.input("a", f32(*rows, depth))]
    operands += [g.input(name, type_) for name, type_ in zip("cs", types, strict=True)]
    attrs = {"bits": bits, "axis": axis, "transpose_b": transposed}
    return with_epilogue(g.emit("matmul_blocks", *operands, **attrs), epilogue)


@pytest.mark.parametrize("isa", ["sse2", "avx2", "avx512", "neon"])
def test_few_rows_times_codes_agree_with_the_oracle(isa: str, tmp_path: Path) -> None:
    """Operands are drawn as numbers, and the codes and scales of others."""
    cases = []
    ways = itertools.cycle([(4, True), (8, False), (4, False), (8, True)])
    for seed, (product, way) in enumerate(zip(PRODUCTS * 2, ways, strict=False)):
        bits, transposed = way
        node = product_case(product, way)
        rng = np.random.default_rng(seed)
        operands = [draw_array(rng, value) for value in node.operands]
        blocks = Blocks(bits, int(transposed))
        shape = blocks.shape(operands[1].shape)
        operands[1:3] = blocks.encode(rng.standard_normal(shape).astype(np.float32))
        cases.append(Case(node, CBackend(device_of(isa)).kernel(node), tuple(operands)))
    (check_on_arm if isa == "neon" else check)(cases, tmp_path)


def test_products_across_the_blocks_are_no_op() -> None:
    g = Builder(Graph("case"))
    operands = [g.input("a", f32(1, 64))]
    operands += [g.input(n, t) for n, t in zip("cs", Blocks(8, 0).types((32, 64)), strict=True)]
    with pytest.raises(GraphError, match="do not lie along the sum"):
        g.emit("matmul_blocks", *operands, bits=8, axis=0, transpose_b=True)
