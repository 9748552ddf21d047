"""Generated kernels of attention and its gradients agree with the NumPy oracle."""

from pathlib import Path

import numpy as np

from pockengine.backends.c.backend import FUSION, CBackend
from pockengine.compiler.ir import BOOL, F32, Builder, Graph, TensorType
from pockengine.compiler.ops.attention import GRADIENTS
from pockengine.compiler.passes.kernels.fuse import Fuse
from pockengine.compiler.target import Target
from pockengine.tests.backends.c.harness import (
    SANITIZED,
    Case,
    device_of,
    draw_array,
    run_cases,
)

LOWEST = -1e30
RTOL, ATOL = 2e-5, 1e-5
"""Sums of up to 200 products in a different order, and differences of such sums."""


def _f32(*shape: int) -> TensorType:
    return TensorType(F32, shape)


def _cases(
    isa: str, heads: int, groups: int, sizes: tuple[int, ...], *mask: TensorType, **attrs: object
) -> list[Case]:
    """Attention of two samples, and its gradients."""
    rows, columns, size, width = sizes
    rng = np.random.default_rng(0)
    device = device_of(isa)
    attrs = {"scale": 0.3, **attrs}

    def case(types: list[TensorType], arrays: list[np.ndarray], *ops: str) -> Case:
        g = Builder(Graph("case"))
        values = [g.input(f"x{place}", type_) for place, type_ in enumerate(types)]
        for op in ops:
            for place, result in enumerate(g.emit(op, *values, **attrs).results):
                g.output(f"{op}{place}", result)
        Fuse(Target(FUSION)).run(g.graph)
        (node,) = g.graph.nodes
        return Case(node, CBackend(device).kernel(node), tuple(arrays))

    def drawn(types: list[TensorType]) -> list[np.ndarray]:
        g = Builder(Graph("case"))
        return [draw_array(rng, g.input(f"x{i}", type_)) for i, type_ in enumerate(types)]

    y = _f32(2, rows, heads, width)
    qkv = [_f32(2, rows, heads, size), _f32(2, columns, groups, size)]
    qkv.append(_f32(2, columns, groups, width))
    arrays = drawn([*qkv, *mask])
    for array in arrays[3:]:
        array[..., 0] = 1  # each row has a visible column
        if array.dtype == np.bool_:
            array[..., : (array.shape[-2] + 1) // 2, array.shape[-1] // 3 :] = False
    forward = case([*qkv, *mask], arrays, "attention")
    result, stats = forward.expected
    (dy,) = drawn([y])
    delta = (dy * result).sum(-1, keepdims=True)
    row = [_f32(2, rows, heads, 2), _f32(2, rows, heads, 1)]
    operands = [dy, *arrays[:3], stats, delta, *arrays[3:]]
    types = [y, *qkv, *row, *mask]
    apart = [(op,) for op in GRADIENTS] if groups == 1 else [GRADIENTS[:2]]
    return [forward, *(case(types, operands, *ops) for ops in (GRADIENTS, *apart))]


CASES = [
    ("sse2", 1, 1, (1, 1, 1, 1), (), {}),
    ("avx2", 4, 2, (131, 131, 16, 20), (), {"causal": True}),
    ("avx512", 2, 2, (49, 130, 17, 33), (TensorType(BOOL, (1, 1, 49, 130)),), {"hidden": -3.0}),
    ("sse2", 3, 1, (130, 65, 64, 64), (_f32(2, 1, 1, 65),), {}),
    ("avx2", 2, 1, (70, 140, 8, 24), (_f32(2, 2, 70, 140),), {"causal": True, "hidden": LOWEST}),
    ("avx2", 2, 2, (100, 90, 8, 40), (TensorType(BOOL, (2, 1, 100, 90)),), {}),
    ("avx2", 4, 2, (1, 140, 20, 24), (TensorType(BOOL, (1, 1, 1, 140)),), {}),
    ("sse2", 2, 1, (1, 90, 33, 9), (TensorType(BOOL, (2, 1, 1, 90)),), {}),
    ("avx2", 2, 1, (3, 90, 33, 9), (TensorType(BOOL, (2, 1, 3, 90)),), {}),
]
"""Rows and columns below and above a block, and few rows; shared keys or not; each kind of mask and
width.
"""


def test_attention_and_its_gradients_agree_with_the_oracle(tmp_path: Path) -> None:
    cases = [
        case
        for isa, heads, groups, sizes, mask, attrs in CASES
        for case in _cases(isa, heads, groups, sizes, *mask, **attrs)
    ]
    compiler = ("gcc", "-O0", *SANITIZED[1:], "-march=native")
    for case, runs in zip(cases, run_cases(cases, tmp_path, compiler), strict=True):
        for results in runs:
            for found, expected in zip(results, case.expected, strict=True):
                np.testing.assert_allclose(found, expected, RTOL, ATOL, err_msg=repr(case.node))
