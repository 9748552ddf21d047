"""Generated code decodes weights stored in blocks as the oracle does, bit for bit."""

from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.c.backend import CBackend
from pockengine.compiler.ir import Builder, Graph
from pockengine.compiler.ir.blocks import Blocks
from pockengine.tests.backends.c.harness import SANITIZED, Case, device_of, run_cases

SHAPES = [((32,), 0), ((96, 7), 0), ((2, 64, 130), 1), ((5, 64), 1), ((3, 2, 320), 2)]


@pytest.mark.parametrize("isa", ["sse2", "avx2"])
def test_every_axis_and_width_agrees_with_the_oracle(isa: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    cases = []
    for bits in (4, 8):
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
