"""Integer kernels equal the oracle bit for bit: products, epilogues, elementwise ops."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pockengine.backends.c.backend import FUSION, CBackend
from pockengine.backends.native.toolchain import find_toolchain
from pockengine.compiler.ir import F32, I32, Builder, DType, Graph, Node, TensorType, Value
from pockengine.compiler.ops.quantized import fixed_point
from pockengine.compiler.passes.kernels.fuse import Fuse
from pockengine.compiler.target import Target
from pockengine.devices import load_device
from pockengine.errors import CompileError
from pockengine.tests.backends.c.harness import (
    MACHINES,
    OPTIMIZED,
    SANITIZED,
    Case,
    device_of,
    run_cases,
)
from pockengine.tests.backends.c.integer_nodes import elementwise_nodes

I8 = DType.I8
WINDOWS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 5, 7, 3), (3, 3, 3, 17), {"padding": (1, 1, 1, 1)}),
    ((1, 9, 9, 6), (3, 3, 6, 5), {"padding": (0, 1, 0, 1), "stride": (2, 2)}),
    ((1, 4, 13, 8), (1, 1, 8, 33), {}),
    ((1, 8, 6, 4), (2, 3, 2, 6), {"padding": (1, 0, 2, 1), "groups": 2, "dilation": (2, 1)}),
    ((2, 6, 7, 19), (3, 3, 1, 19), {"padding": (1, 1, 1, 1), "groups": 19}),
    ((1, 7, 7, 8), (5, 5, 1, 8), {"padding": (2, 2, 2, 2), "groups": 8, "stride": (2, 2)}),
]
MATRICES = [
    ((4, 9), (9, 21), {}),
    ((2, 3, 8), (8, 5), {}),
    ((5, 13), (7, 13), {"transpose_b": True}),
    ((11, 6), (11, 18), {"transpose_a": True}),
]


def products(first: DType, second: DType) -> list[Node]:
    """All products of operands of these types, for all windows and matrices."""
    zeros = (-3 if first is I8 else 0, 0)
    nodes = []
    for x, w, attrs in WINDOWS:
        g = Builder(Graph("product"))
        y = g.conv2d(g.input("f", TensorType(F32, x)), g.input("h", TensorType(F32, w)), **attrs)
        pair = (g.input("x", TensorType(first, x)), g.input("w", TensorType(second, w)))
        nodes.append(g.emit("conv2d", *pair, zeros=zeros, **attrs))
        gradient = g.input("dy", TensorType(second, y.shape))
        nodes.append(g.emit("conv2d_dw", pair[0], gradient, zeros=zeros, weight_shape=w, **attrs))
        gradient = g.input("dz", TensorType(first, y.shape))
        nodes.append(g.emit("conv2d_dx", gradient, pair[1], input_shape=x, **attrs))
    for a, b, attrs in MATRICES:
        g = Builder(Graph("product"))
        pair = (g.input("a", TensorType(first, a)), g.input("b", TensorType(second, b)))
        nodes.append(g.emit("matmul", *pair, zeros=zeros, **attrs))
    return nodes


def drawn(rng: np.random.Generator, value: Value) -> np.ndarray:
    """Random contents over the whole range of an integer type; normal numbers for floats."""
    if value.dtype is F32:
        return rng.standard_normal(value.shape).astype(np.float32)
    limits = np.iinfo(str(value.dtype.numpy))
    return rng.integers(limits.min, limits.max, value.shape, endpoint=True).astype(
        value.dtype.numpy
    )


def cases_of(nodes: list[Node], isa: str, known: dict[str, np.ndarray] | None = None) -> list[Case]:
    """Cases with operands given by name, or random ones."""
    rng, backend, known = np.random.default_rng(0), CBackend(device_of(isa)), known or {}

    def data(value: Value) -> np.ndarray:
        return known[value.name] if value.name in known else drawn(rng, value)

    return [
        Case(node, backend.kernel(node), tuple(data(value) for value in node.operands))
        for node in nodes
    ]


@pytest.mark.parametrize(
    ("isa", "flags"),
    [
        ("avx2", ("gcc", *SANITIZED)),
        ("dsp", ("gcc", *SANITIZED)),
        ("helium", ("gcc", *SANITIZED)),
        ("sse2", ("gcc", *OPTIMIZED, MACHINES["sse2"])),
        ("avx2", ("gcc", *OPTIMIZED, MACHINES["avx2"])),
    ],
)
def test_products_of_integers_are_the_oracles(
    tmp_path: Path, isa: str, flags: tuple[str, ...]
) -> None:
    cases = cases_of([*products(I8, I8), *elementwise_nodes()], isa)
    fused, known = fused_convolution()
    cases += cases_of([fused], isa, known)
    for case, runs in zip(cases, run_cases(cases, tmp_path, flags), strict=True):
        for results in runs:
            np.testing.assert_array_equal(results[0], case.expected[0], str(case.node))


def test_integers_on_the_dsp_are_the_oracles(tmp_path: Path) -> None:
    device, emulator = load_device("snapdragon-dsp"), shutil.which("qemu-hexagon")
    if emulator is None:
        pytest.skip("qemu-hexagon is not installed: apt install qemu-user")
    assert device.emulator is not None
    ends = np.array([np.nan, np.inf, -np.inf, 2.0**31, -(2.0**31), 3e9, 1e-42, -0.0], np.float32)
    halves = np.resize(np.concatenate([ends, np.arange(-130, 130) / 2]), (5, 37)).astype("f4")
    known = {"x": halves, "s": np.resize(np.array([1, 0.5, 0.37], np.float32), 37)}
    fused, fixed = fused_convolution()
    cases = cases_of(elementwise_nodes(), device.cpu.isa, known)
    cases += cases_of([fused], device.cpu.isa, fixed)
    toolchain = find_toolchain(device)
    compiler = (*toolchain.command, *OPTIMIZED, "-s")
    how = {"launcher": (emulator, "-cpu", device.emulator.cpu)}
    found = run_cases(cases, tmp_path, compiler, environment=toolchain.environment, **how)
    for case, runs in zip(cases, found, strict=True):
        for results in runs:
            np.testing.assert_array_equal(results[0], case.expected[0], str(case.node))


@pytest.mark.parametrize(("first", "second"), [(I8, F32), (F32, I8)])
def test_products_with_one_operand_of_integers(tmp_path: Path, first: DType, second: DType) -> None:
    cases = cases_of(products(first, second), "avx2")
    for case, runs in zip(cases, run_cases(cases, tmp_path, ("gcc", *SANITIZED)), strict=True):
        for results in runs:
            np.testing.assert_allclose(results[0], case.expected[0], rtol=1e-4, atol=2e-2)


def fused_convolution() -> tuple[Node, dict[str, np.ndarray]]:
    """Return a convolution whose sums are requantized in its epilogue, and its inputs."""
    g = Builder(Graph("fused"))
    x, w = g.input("x", TensorType(I8, (2, 6, 6, 3))), g.input("w", TensorType(I8, (3, 3, 3, 21)))
    multiplier, exponent = fixed_point(np.geomspace(1e-4, 0.7, 21))
    sums = g.add(
        g.conv2d(x, w, padding=(1, 1, 1, 1), zeros=(7, 0)), g.input("b", TensorType(I32, (21,)))
    )
    fixed = [g.input(name, TensorType(I32, (21,))) for name in ("multiplier", "exponent")]
    g.output("y", g.narrow(g.rescale(sums, *fixed), zero=-5, low=-100, high=90))
    Fuse(Target(FUSION)).run(g.graph)
    (node,) = g.graph.nodes
    return node, {"multiplier": multiplier, "exponent": exponent, "b": np.arange(21, dtype="i4")}


def test_two_transposed_operands_are_refused() -> None:
    g = Builder(Graph("matmul"))
    a, b = g.input("a", TensorType(I8, (3, 4))), g.input("b", TensorType(I8, (5, 3)))
    node = g.emit("matmul", a, b, transpose_a=True, transpose_b=True)
    with pytest.raises(CompileError, match="one is transposed"):
        CBackend(device_of("avx2")).choose(node)
