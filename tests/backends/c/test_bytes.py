"""Products of bytes give the oracle's bits, whatever the shapes and the bytes, on every CPU.

Windows, channels, tails and zero points are drawn; bytes are drawn from the whole range, from its
ends alone, and without -128, which decides how plain NEON sums.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pockengine.backends.c.backend import FUSION, CBackend
from pockengine.backends.c.bytes_depthwise import DepthwiseSpec
from pockengine.backends.c.bytes_product import BytesSpec
from pockengine.backends.c.toolchain import find_toolchain
from pockengine.compiler.ir import F32, I32, Builder, DType, Graph, Node, TensorType
from pockengine.compiler.ops.quantized import fixed_point
from pockengine.compiler.passes.fuse import fuse
from pockengine.devices import Device, load_device
from pockengine.tests.backends.c.harness import (
    MACHINES,
    OPTIMISED,
    SANITIZED,
    Case,
    device_of,
    run_cases,
)

I8 = DType.I8
PROGRAMS = 2
CASES = 14
FLAGS = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
VNNI = {
    "avx512": ("-march=x86-64-v4", "-mavx512vnni"),
    "avx2": ("-march=x86-64-v3", "-mavxvnni"),
}


@st.composite
def products(draw: st.DrawFn) -> tuple[Node, dict[str, np.ndarray]]:
    """Draw a product, some with the epilogue of a quantised layer, and its operands."""
    integer = lambda least, most: draw(st.integers(least, most))  # noqa: E731
    rng = np.random.default_rng(integer(0, 2**31))
    kernel, gap = (integer(1, 3), integer(1, 3)), (integer(1, 2), integer(1, 2))
    stride, padding = (integer(1, 2), integer(1, 2)), tuple(integer(0, 2) for _ in range(4))
    size = tuple((k - 1) * d + integer(1, 9) for k, d in zip(kernel, gap, strict=True))
    channels, depthwise = integer(1, 40), draw(st.booleans())
    features, groups = (channels, channels) if depthwise else (integer(1, 70), 1)
    attrs: dict[str, Any] = {"stride": stride, "dilation": gap, "groups": groups}
    attrs["padding"] = padding
    if draw(st.booleans()) and not depthwise:  # a product of matrices
        kernel, attrs = (1, 1), {}
    x, w = (integer(1, 2), *size, channels), (*kernel, channels // groups, features)
    g = Builder(Graph("product"))
    y = g.conv2d(g.input("f", TensorType(F32, x)), g.input("h", TensorType(F32, w)), **attrs)
    op, zero = draw(st.sampled_from(["conv2d", "conv2d_dx", "conv2d_dw"])), integer(-128, 127)
    shapes = {"conv2d": (x, w), "conv2d_dx": (y.shape, w), "conv2d_dw": (x, y.shape)}[op]
    pair = [g.input(name, TensorType(I8, shape)) for name, shape in zip("xw", shapes, strict=True)]
    more = {"conv2d": {}, "conv2d_dx": {"input_shape": x}, "conv2d_dw": {"weight_shape": w}}[op]
    zeros = (0 if op == "conv2d_dx" else zero, 0)
    known = {"x": _bytes(rng, shapes[0], integer(0, 2)), "w": _bytes(rng, shapes[1], integer(0, 2))}
    made = Graph("made", inputs=pair)
    node = Builder(made).emit(op, *pair, zeros=zeros, **attrs, **more)
    if op == "conv2d" and draw(st.booleans()):
        return _requantised(node, rng, known)
    return node, known


def _bytes(rng: np.random.Generator, shape: tuple[int, ...], kind: int) -> np.ndarray:
    """Bytes of the whole range, of its ends alone, or without its least."""
    if kind == 1:
        return rng.choice(np.array([-128, 127], np.int8), shape)
    return rng.integers(-127 if kind else -128, 127, shape, np.int8, endpoint=True)


def _requantised(
    node: Node, rng: np.random.Generator, known: Mapping[str, np.ndarray]
) -> tuple[Node, dict[str, np.ndarray]]:
    """Add a bias, rescale and narrow the sums of a convolution."""
    graph = Graph("fused", inputs=list(node.operands), nodes=[node])
    g, features = Builder(graph), node.result.shape[-1]
    bias, multiplier, exponent = (
        g.input(name, TensorType(I32, (features,))) for name in ("b", "multiplier", "exponent")
    )
    down = bool(rng.integers(2))
    factors = np.exp(rng.uniform(np.log(1e-6), np.log(0.49 if down else 3.0), features))
    sums = g.rescale(g.add(node.result, bias), multiplier, exponent, down=down)
    low, zero, high = (int(n) for n in np.sort(rng.integers(-128, 127, 3, endpoint=True)))
    g.output("y", g.narrow(sums, zero=zero, low=low, high=high))
    fuse(graph, FUSION)
    found = dict(zip(("multiplier", "exponent"), fixed_point(factors), strict=True))
    found["b"] = rng.integers(-(2**16), 2**16, features).astype(np.int32)
    return graph.nodes[-1], {**known, **found}


def check(
    found: list[Any], device: Device, folder: Path, compiler: tuple[str, ...], **how: Any
) -> None:
    """Compare every result of some products with the oracle's."""
    backend, cases = CBackend(device), []
    for node, known in found:
        operands = tuple(known[value.name] for value in node.operands)
        cases.append(Case(node, backend.kernel(node), operands))
    folder.mkdir(exist_ok=True)
    for case, runs in zip(cases, run_cases(cases, folder, compiler, **how), strict=True):
        for results in runs:
            np.testing.assert_array_equal(results[0], case.expected[0], str(case.node))


def drawn() -> Any:
    """Draw the products of a few programs."""
    limits = settings(
        max_examples=PROGRAMS,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: limits(
        given(found=st.lists(products(), min_size=CASES, max_size=CASES))(test)
    )


@pytest.mark.parametrize(
    ("isa", "flags"),
    [
        ("avx2", SANITIZED),
        ("avx512", (*SANITIZED, MACHINES["avx2"])),
        ("avx2", (*OPTIMISED, MACHINES["avx2"])),
        ("avx2", (*SANITIZED, *VNNI["avx2"])),
        ("avx512", (*OPTIMISED, MACHINES["avx512"])),
        ("avx512", (*OPTIMISED, *VNNI["avx512"])),
    ],
)
@drawn()
def test_products_are_the_oracles(
    tmp_path: Path, isa: str, flags: tuple[str, ...], found: list[Any]
) -> None:
    needed = {"-mavx512vnni": "avx512_vnni", "-mavxvnni": "avx_vnni"}
    needed |= {MACHINES["avx512"]: "avx512bw", MACHINES["avx2"]: "avx2"}
    if missing := [needed[flag] for flag in flags if needed.get(flag, "fpu") not in FLAGS]:
        pytest.skip(f"this CPU lacks {missing}")
    check(found, device_of(isa, 3), tmp_path / "program", ("gcc", *flags))


@pytest.mark.parametrize("name", ["rpi4", "rpi5", "snapdragon-dsp"])
@drawn()
def test_products_on_boards_are_the_oracles(tmp_path: Path, name: str, found: list[Any]) -> None:
    device = load_device(name)
    emulator = shutil.which(f"qemu-{device.cpu.arch}")
    if emulator is None:
        pytest.skip(f"qemu-{device.cpu.arch} is not installed: apt install qemu-user")
    assert device.emulator is not None
    toolchain = find_toolchain(device)
    how = {"threads": (1, 2), "launcher": (emulator, "-cpu", device.emulator.cpu)}
    compiler = (*toolchain.command, *OPTIMISED, "-s")
    check(found, device, tmp_path / "program", compiler, environment=toolchain.environment, **how)


def test_a_cpu_that_multiplies_bytes_does_so() -> None:
    g = Builder(Graph("products"))
    x, w = g.input("x", TensorType(I8, (1, 4, 4, 8))), g.input("w", TensorType(I8, (3, 3, 8, 5)))
    deep = g.input("d", TensorType(I8, (3, 3, 1, 8)))
    backend = CBackend(device_of("neon"))
    plain = g.emit("conv2d", x, w)
    assert isinstance(backend.choose(plain).spec, BytesSpec)
    depthwise = g.emit("conv2d", x, deep, groups=8)
    assert isinstance(backend.choose(depthwise).spec, DepthwiseSpec)
