"""Int8 products equal the oracle's bit for bit, for all shapes and bytes, on every CPU.

Windows, channels, tails and zero points are drawn; bytes come from the whole range, only its ends,
or without -128, on which the choice of plain NEON's sums depends.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pockengine.backends.c.backend import CBackend
from pockengine.backends.c.integers.bytes_depthwise import DepthwiseSpec
from pockengine.backends.c.integers.bytes_product import BytesSpec
from pockengine.backends.native.toolchain import find_toolchain
from pockengine.compiler.ir import F32, Builder, DType, Graph, Node, TensorType
from pockengine.devices import Device, load_device
from pockengine.tests.backends.c.harness import (
    MACHINES,
    OPTIMIZED,
    SANITIZED,
    Case,
    device_of,
    run_cases,
)
from pockengine.tests.backends.c.integer_nodes import products, rescalings

I8 = DType.I8
PROGRAMS = 2
CASES = 14
FLAGS = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
VNNI = {
    "avx512": ("-march=x86-64-v4", "-mavx512vnni"),
    "avx2": ("-march=x86-64-v3", "-mavxvnni"),
}


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
        ("helium", SANITIZED),
        ("avx512", (*SANITIZED, MACHINES["avx2"])),
        ("avx2", (*OPTIMIZED, MACHINES["avx2"])),
        ("avx2", (*SANITIZED, *VNNI["avx2"])),
        ("avx512", (*OPTIMIZED, MACHINES["avx512"])),
        ("avx512", (*OPTIMIZED, *VNNI["avx512"])),
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
    check([*found, *rescalings()], device_of(isa), tmp_path / "program", ("gcc", *flags))


@pytest.mark.parametrize("name", ["rpi4", "rpi5", "snapdragon-dsp"])
@drawn()
def test_products_on_boards_are_the_oracles(tmp_path: Path, name: str, found: list[Any]) -> None:
    device = load_device(name)
    emulator = shutil.which(f"qemu-{device.cpu.arch}")
    if emulator is None:
        pytest.skip(f"qemu-{device.cpu.arch} is not installed: apt install qemu-user")
    assert device.emulator is not None
    toolchain = find_toolchain(device)
    check(
        [*found, *rescalings()],
        device,
        tmp_path / "program",
        (*toolchain.command, *OPTIMIZED, "-s"),
        threads=(1, 2),
        launcher=(emulator, "-cpu", device.emulator.cpu),
        environment=toolchain.environment,
    )


def windows(kind: str) -> list[Node]:
    """Weight gradients of few channels, and strided input gradients of depthwise convolutions."""
    few = [
        (3, 1, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
        (1, 1, (2, 5), (1, 2), (1, 1), (0, 1, 4, 0)),
        (8, 1, (3, 2), (2, 1), (1, 1), (2, 0, 1, 1)),
    ]
    strided = [
        (11, 11, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
        (11, 11, (2, 3), (1, 3), (2, 1), (0, 2, 1, 0)),
        (11, 11, (1, 1), (3, 2), (1, 1), (0, 0, 0, 0)),
    ]
    found = []
    for channels, groups, kernel, stride, gap, padding in few if kind == "few" else strided:
        x, w = (2, 7, 9, channels), (*kernel, channels // groups, channels if groups > 1 else 18)
        g = Builder(Graph("windows"))
        attrs: dict[str, Any] = {
            "stride": stride,
            "dilation": gap,
            "padding": padding,
            "groups": groups,
        }
        y = g.conv2d(g.input("x", TensorType(F32, x)), g.input("w", TensorType(F32, w)), **attrs)
        shapes = (x, y.shape) if kind == "few" else (y.shape, w)
        a, b = (g.input(n, TensorType(I8, shape)) for n, shape in zip("ab", shapes, strict=True))
        if kind == "few":
            attrs |= {"zeros": (-7, 0), "weight_shape": w}
            found.append(g.emit("conv2d_dw", a, b, **attrs))
        else:
            found.append(g.emit("conv2d_dx", a, b, zeros=(0, 0), input_shape=x, **attrs))
    return found


@pytest.mark.parametrize("name", ["host", "rpi4"])
@pytest.mark.parametrize("kind", ["few", "strided"])
def test_taps_of_few_channels_and_strides_are_the_oracles(
    tmp_path: Path, kind: str, name: str
) -> None:
    """Taps of few channels are rows together; a strided gradient has code for each phase."""
    device, how = device_of("avx2", 2), dict[str, Any]()
    compiler: tuple[str, ...] = ("gcc", *SANITIZED)
    if name == "rpi4":
        if shutil.which("qemu-aarch64") is None:
            pytest.skip("qemu-aarch64 is not installed: apt install qemu-user")
        device, toolchain = load_device(name), find_toolchain(load_device(name))
        how = {"launcher": ("qemu-aarch64",), "environment": toolchain.environment}
        compiler = (*toolchain.command, *OPTIMIZED, "-s")
    nodes, rng = windows(kind), np.random.default_rng(3)
    for node in nodes if kind == "few" else ():
        spec = CBackend(device).choose(node).spec
        assert isinstance(spec, BytesSpec)
        assert spec.sizes[0] == spec.window.kernel[1] * spec.window.channels
    known = [{v.name: _all_bytes(rng, v.shape) for v in node.operands} for node in nodes]
    check(
        list(zip(nodes, known, strict=True)),
        device,
        tmp_path / "program",
        compiler,
        threads=(1, 2),
        **how,
    )


def _all_bytes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(-128, 127, shape, np.int8, endpoint=True)


def test_a_cpu_that_multiplies_bytes_does_so() -> None:
    g = Builder(Graph("products"))
    x, w = g.input("x", TensorType(I8, (1, 4, 4, 8))), g.input("w", TensorType(I8, (3, 3, 8, 5)))
    deep = g.input("d", TensorType(I8, (3, 3, 1, 8)))
    backend = CBackend(device_of("neon"))
    plain = g.emit("conv2d", x, w)
    assert isinstance(backend.choose(plain).spec, BytesSpec)
    depthwise = g.emit("conv2d", x, deep, groups=8)
    assert isinstance(backend.choose(depthwise).spec, DepthwiseSpec)
