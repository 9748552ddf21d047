"""Floats in integer vectors equal IEEE's bit for bit, on the emulated DSP; Arm rounds likewise.

A vector whose lanes are all computed by integers takes another path than one that uses the scalar
unit. So each kind of number fills vectors of its own, and some are mixed.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.c.backend import FUSION, CBackend
from pockengine.backends.c.integers.integer_vectors import integer_lanes
from pockengine.backends.native.toolchain import find_toolchain
from pockengine.compiler.ir import BOOL, F32, I32, Builder, DType, Graph, Node, TensorType
from pockengine.compiler.passes.kernels.fuse import Fuse
from pockengine.compiler.target import Target
from pockengine.devices import Device, load_device
from pockengine.tests.backends.c.harness import OPTIMIZED, Case, device_of, run_cases

TYPES = {"float32": F32, "int32": I32, "int8": DType.I8, "bool": BOOL}
DSP = load_device("snapdragon-dsp")
ROWS, COLUMNS = 60, 75
SCALES = np.array([1.0, 0.37, 3.1e-5, 0.00784, 2.0**-20, 1.9999999, 1e-38, 1e-42], np.float32)


def bits(rng: np.random.Generator, low: int, high: int) -> np.ndarray:
    """Floats of random signs whose bits are within a range."""
    sizes = rng.integers(low, high, (ROWS, COLUMNS), endpoint=True).astype(np.uint32)
    signs = rng.integers(0, 2, sizes.shape).astype(np.uint32) << np.uint32(31)
    return (sizes | signs).view(np.float32)


def floats(rng: np.random.Generator) -> list[np.ndarray]:
    """Numbers near 1, of all normal exponents, with zeros, of random bits, and at the limits."""
    near, normal = bits(rng, 0x3E000000, 0x41000000), bits(rng, 0x00800000, 0x7F7FFFFF)
    ends = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 1.1754942e-38, 3.4e38], np.float32)
    zeros = np.where(rng.random(near.shape) < 0.5, np.float32(0), near)
    return [near, normal, zeros, bits(rng, 0, 0x7FFFFFFF), rng.choice(ends, near.shape)]


def beside_halves(rng: np.random.Generator, scale: np.ndarray) -> np.ndarray:
    """Numbers whose quotients by the scale are halves, almost halves, or their neighbors."""
    halves = rng.integers(-260, 260, (ROWS, COLUMNS)) + 0.5
    exact = (halves * scale.astype(np.float64)).astype(np.float32)
    off = rng.integers(-3, 4, exact.shape)
    for _ in range(3):
        exact = np.where(off > 0, np.nextafter(exact, np.float32(np.inf)), exact)
        exact = np.where(off < 0, np.nextafter(exact, np.float32(-np.inf)), exact)
        off = off - np.sign(off)
    return exact


def case_of(op: str, operands: Sequence[np.ndarray], device: Device = DSP, **attrs: object) -> Case:
    """One op on these operands."""
    g = Builder(Graph("case"))
    made = [
        g.input(f"x{i}", TensorType(TYPES[str(array.dtype)], array.shape))
        for i, array in enumerate(operands)
    ]
    return _case(g.emit(op, *made, **attrs), operands, device)


def _case(node: Node, operands: Sequence[np.ndarray], device: Device = DSP) -> Case:
    return Case(node, CBackend(device).kernel(node), tuple(operands))


def largest(x: np.ndarray) -> Case:
    """The largest magnitude of each column."""
    graph = Graph("largest")
    g = Builder(graph)
    g.output("y", g.reduce_max(g.abs(g.input("x", TensorType(F32, x.shape))), axes=(0,)))
    Fuse(Target(FUSION)).run(graph)
    (node,) = graph.nodes
    return _case(node, (x,))


def cases() -> list[Case]:
    """Every op on floats that integer vectors support, on each kind of number."""
    rng, found = np.random.default_rng(0), []
    known = floats(rng)
    sums = rng.integers(-(2**31), 2**31, (ROWS, COLUMNS)).astype(np.int32)
    small = (sums >> rng.integers(0, 32, sums.shape)).astype(np.int32)
    mask = rng.random(sums.shape) < 0.5
    for x in known:
        found += [case_of("mul", (x, y)) for y in (*known, known[0][:1], SCALES[1:2])]
        found += [case_of("quantize", (x, scale)) for scale in (SCALES[:1], SCALES[3:4])]
        found += [case_of("reduce_max", (x,), axes=(0,)), largest(x)]
        found += [case_of("where", (mask, x, known[0])), case_of("abs", (x,))]
    for scale in (*SCALES, np.resize(SCALES[:6], COLUMNS), np.resize(SCALES, COLUMNS)):
        x, by = beside_halves(rng, scale), np.atleast_1d(scale)
        found += [case_of("quantize", (x, by), zero=zero) for zero in (0, -128, 127)]
        found += [case_of("dequantize", (array, by), zero=0) for array in (sums, small)]
    found += [case_of("cast", (array,), dtype="f32") for array in (sums, small, mask)]
    return found


def check(found: Sequence[Case], folder: Path, device: Device = DSP) -> None:
    """Compare bits with the oracle's, and NaN as NaN."""
    emulator = shutil.which(f"qemu-{device.cpu.arch}")
    if emulator is None:
        pytest.skip(f"qemu-{device.cpu.arch} is not installed: apt install qemu-user")
    assert device.emulator is not None
    toolchain = find_toolchain(device)
    launcher = (emulator, "-cpu", device.emulator.cpu)
    how = {"launcher": launcher, "environment": toolchain.environment}
    with np.errstate(all="ignore"):
        expected = [case.expected[0] for case in found]
    compiler = (*toolchain.command, *OPTIMIZED, "-s")
    for case, wanted, runs in zip(
        found, expected, run_cases(found, folder, compiler, threads=(1, 2), **how), strict=True
    ):
        for results in runs:
            np.testing.assert_array_equal(results[0], wanted, str(case.node))
            got, signs = (np.signbit(array)[wanted == wanted] for array in (results[0], wanted))
            np.testing.assert_array_equal(got, signs, str(case.node))


def test_floats_in_vectors_of_integers_are_ieees(tmp_path: Path) -> None:
    found = cases()
    assert all("x32" in CBackend(DSP).choose(case.node).label for case in found)
    check(found, tmp_path)


@pytest.mark.parametrize("name", ["rpi4", "rpi5"])
def test_boards_round_what_does_not_fit_and_nan_as_the_oracle(tmp_path: Path, name: str) -> None:
    device, rng = load_device(name), np.random.default_rng(0)
    pairs = [(x, SCALES[i : i + 1]) for x in floats(rng) for i in (0, 3, 4)]
    pairs += [(beside_halves(rng, np.atleast_1d(scale)), np.atleast_1d(scale)) for scale in SCALES]
    found = [case_of("quantize", pair, device, zero=zero) for pair in pairs for zero in (0, -128)]
    # Biases are i32: intermediate saturation to i8, as eight lanes may do, would lose them.
    wide = {"dtype": "i32", "low": -(2**31), "high": 2**31 - 1}
    whole = [(x[:, :64].copy(), SCALES[i : i + 1]) for x in floats(rng) for i in (0, 1)]
    found += [case_of("quantize", pair, device, **wide) for pair in whole]
    check(found, tmp_path, device)


def test_vectors_of_floats_are_left_as_they_are() -> None:
    assert [integer_lanes(device_of(isa)) for isa in ("avx2", "neon", "dsp")] == [0, 0, 0]
    g = Builder(Graph("sum"))
    x = g.input("x", TensorType(F32, (4, 64)))
    label = CBackend(DSP).choose(g.emit("add", x, x)).label
    assert label.endswith("x4")
