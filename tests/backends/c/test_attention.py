"""Generated kernels of attention and its gradients agree with the NumPy oracle."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.c.backend import FUSION, CBackend
from pockengine.compiler.ir import BOOL, F32, Builder, Graph, TensorType
from pockengine.compiler.ops.attention import GRADIENTS
from pockengine.compiler.passes.kernels.fuse import Fuse
from pockengine.compiler.target import Target
from pockengine.devices import load_device
from pockengine.tests.backends.c.anchors import zig_for
from pockengine.tests.backends.c.bf16 import to_bf16, with_tiles
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


Attrs = Mapping[str, object]


def _case(
    backend: CBackend,
    types: Sequence[TensorType],
    arrays: Sequence[np.ndarray],
    *,
    ops: Sequence[str],
    attrs: Attrs,
) -> Case:
    g = Builder(Graph("case"))
    values = [g.input(f"x{place}", type_) for place, type_ in enumerate(types)]
    for op in ops:
        for place, result in enumerate(g.emit(op, *values, **attrs).results):
            g.output(f"{op}{place}", result)
    Fuse(Target(FUSION)).run(g.graph)
    (node,) = g.graph.nodes
    return Case(node, backend.kernel(node), tuple(arrays))


def _drawn(
    rng: np.random.Generator, types: Sequence[TensorType], *, rounded: bool
) -> list[np.ndarray]:
    g = Builder(Graph("case"))
    found = [draw_array(rng, g.input(f"x{i}", type_)) for i, type_ in enumerate(types)]
    return [to_bf16(x) if rounded and x.dtype == np.float32 else x for x in found]


def _cases(
    backend: CBackend,
    heads: int,
    groups: int,
    sizes: tuple[int, ...],
    *mask: TensorType,
    apart: bool = False,
    **attrs: object,
) -> list[Case]:
    """Attention of two samples, and its gradients, also each in a kernel of its own if `apart`;
    operands are bf16 numbers for such products.
    """
    rows, columns, size, width = sizes
    attrs = {"scale": 0.3, **attrs}
    draw = partial(_drawn, np.random.default_rng(0), rounded=backend.options.bf16)
    y = _f32(2, rows, heads, width)
    qkv = [_f32(2, rows, heads, size), _f32(2, columns, groups, size)]
    qkv.append(_f32(2, columns, groups, width))
    arrays = draw([*qkv, *mask])
    for array in arrays[3:]:
        array[..., 0] = 1  # each row has a visible column
        if array.dtype == np.bool_:
            array[..., : (array.shape[-2] + 1) // 2, array.shape[-1] // 3 :] = False
    forward = _case(backend, [*qkv, *mask], arrays, ops=("attention",), attrs=attrs)
    result, stats = forward.expected
    (dy,) = draw([y])
    delta = (dy * result).sum(-1, keepdims=True)
    operands = [dy, *arrays[:3], stats, delta, *arrays[3:]]
    types = [y, *qkv, _f32(2, rows, heads, 2), _f32(2, rows, heads, 1), *mask]
    kernels: list[tuple[str, ...]] = [GRADIENTS]
    if apart:
        kernels += [(op,) for op in GRADIENTS] if groups == 1 else [GRADIENTS[:2]]
    backward = [_case(backend, types, operands, ops=ops, attrs=attrs) for ops in kernels]
    return [forward, *backward]


CASES = [
    ("sse2", 1, 1, (1, 1, 1, 1), (), {}),
    ("avx2", 4, 2, (131, 131, 16, 20), (), {"causal": True}),
    ("avx512", 2, 2, (49, 130, 17, 33), (TensorType(BOOL, (1, 1, 49, 130)),), {"hidden": -3.0}),
    ("sse2", 3, 1, (130, 65, 64, 64), (_f32(2, 1, 1, 65),), {}),
    ("avx2", 2, 1, (70, 140, 8, 24), (_f32(2, 2, 70, 140),), {"causal": True, "hidden": LOWEST}),
    ("avx2", 2, 2, (100, 90, 8, 40), (TensorType(BOOL, (2, 1, 100, 90)),), {}),
    ("avx2", 4, 2, (1, 140, 20, 24), (TensorType(BOOL, (1, 1, 1, 140)),), {}),
    ("sse2", 2, 1, (1, 90, 33, 9), (TensorType(BOOL, (2, 1, 1, 90)),), {"hidden": -3.0}),
    ("avx2", 2, 1, (3, 90, 33, 9), (TensorType(BOOL, (2, 1, 3, 90)),), {}),
]
"""Rows and columns below and above a block, and few rows; shared keys or not; each kind of mask and
width.
"""

APART = {2, 4, 7}
"""Cases whose gradients have kernels of their own too: shared keys, blocks of rows, and one row."""

COMPILER = ("gcc", *SANITIZED, "-march=native")


def test_attention_and_its_gradients_agree_with_the_oracle(tmp_path: Path) -> None:
    cases = [
        case
        for place, (isa, heads, groups, sizes, mask, attrs) in enumerate(CASES)
        for case in _cases(
            CBackend(device_of(isa)), heads, groups, sizes, *mask, apart=place in APART, **attrs
        )
    ]
    for case, runs in zip(cases, run_cases(cases, tmp_path, COMPILER), strict=True):
        for results in runs:
            for found, expected in zip(results, case.expected, strict=True):
                np.testing.assert_allclose(found, expected, RTOL, ATOL, err_msg=repr(case.node))


TILED_CASES = [
    (2, 1, (70, 70, 32, 32), (), {"causal": True}),
    (2, 2, (32, 300, 40, 64), (TensorType(BOOL, (2, 1, 32, 300)),), {}),
    (3, 1, (130, 65, 80, 33), (_f32(2, 1, 1, 65),), {}),
    (2, 1, (100, 290, 33, 48), (_f32(2, 2, 100, 290),), {"causal": True, "hidden": LOWEST}),
]
"""Parts of tiles of 32, sums of more than 256 columns, and each kind of mask."""

TILED_APART = {1, 3}


def _tiled() -> list[Case]:
    backend = CBackend(with_tiles("avx512"), bf16=True)
    cases = [
        case
        for place, (heads, groups, sizes, mask, attrs) in enumerate(TILED_CASES)
        for case in _cases(
            backend, heads, groups, sizes, *mask, apart=place in TILED_APART, **attrs
        )
    ]
    assert all("pe_bf16_attention" in case.kernel.symbol for case in cases)
    return cases


def _check_rounded(case: Case, runs: Sequence[tuple[np.ndarray, ...]]) -> None:
    """Check statistics as f32, and other results within the rounding of shares to bf16."""
    for results in runs:
        for found, expected in zip(results, case.expected, strict=True):
            largest = 0.0 if expected.shape[-1] == 2 else float(np.abs(expected).max())
            np.testing.assert_allclose(
                found, expected, RTOL, ATOL + largest / 256, err_msg=repr(case.node)
            )


def test_attention_in_tiles_rounds_operands_to_bf16(tmp_path: Path) -> None:
    cases = _tiled()
    for case, runs in zip(cases, run_cases(cases, tmp_path, COMPILER), strict=True):
        _check_rounded(case, runs)


@pytest.mark.skipif(not load_device("host").cpu.amx, reason="this CPU has no tiles of bf16")
def test_attention_in_the_machines_own_tiles(tmp_path: Path) -> None:
    cases, (compiler, environment) = _tiled(), zig_for("host")
    found = run_cases(cases, tmp_path, compiler, environment=environment)
    for case, runs in zip(cases, found, strict=True):
        _check_rounded(case, runs)


def test_heads_below_a_tile_or_above_256_keep_f32() -> None:
    backend = CBackend(with_tiles("avx512"), bf16=True)
    for size in (16, 300):
        for case in _cases(backend, 1, 1, (40, 40, size, size), apart=True):
            assert "pe_f32_attention" in case.kernel.symbol
