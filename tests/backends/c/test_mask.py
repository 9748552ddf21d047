"""Packed masks agree with the NumPy oracle, for channel counts around word sizes, sanitized."""

from pathlib import Path

import numpy as np

from pockengine.backends.c.backend import CBackend
from pockengine.compiler.ir import BOOL, I32, Builder, Graph, TensorType
from pockengine.tests.backends.c.harness import SANITIZED, Case, device_of, run_cases

SHAPES = [(1,), (7,), (3, 8), (2, 31), (4, 32), (2, 2, 33), (5, 64), (3, 100)]


def test_packing_and_unpacking_agree_with_the_oracle(tmp_path: Path) -> None:
    backend = CBackend(device_of("avx2", 3))
    rng = np.random.default_rng(0)
    cases = []
    for shape in SHAPES:
        g = Builder(Graph("mask"))
        mask = g.emit("pack_mask", g.input("x", TensorType(BOOL, shape)))
        words = TensorType(I32, mask.result.shape)
        back = g.emit("unpack_mask", g.input("bits", words), channels=shape[-1])
        data = rng.integers(0, 2, shape).astype(bool)
        cases.append(Case(mask, backend.kernel(mask), (data,)))
        bits = rng.integers(-(2**31), 2**31, words.shape).astype(np.int32)
        cases.append(Case(back, backend.kernel(back), (bits,)))
    for case, runs in zip(cases, run_cases(cases, tmp_path, ("gcc", *SANITIZED)), strict=True):
        for results in runs:
            np.testing.assert_array_equal(results[0], case.expected[0])
