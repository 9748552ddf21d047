"""Random nodes of the anchor ops, plain and with an epilogue, for the tests of their kernels."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from pockengine.backends.c.backend import CBackend
from pockengine.backends.native.kernel import Kernel
from pockengine.backends.native.toolchain import find_toolchain
from pockengine.compiler.ir import Builder, Graph, Node, Value
from pockengine.compiler.ir.types import f32
from pockengine.devices.schema import Device, load_device
from pockengine.tests.backends.c.harness import (
    CORES,
    OPTIMIZED,
    SANITIZED,
    WARNINGS,
    Case,
    device_of,
    draw_array,
    run_cases,
)

NATIVE = ("gcc", *SANITIZED, *WARNINGS, "-march=native")
X86 = ("avx512", "avx2", "sse2")

TOLERANCE = 1e-5
"""Rounding of sums of up to a thousand f32 products, relative to the largest value."""

SIZES = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 24, 31, 33, 48, 49, 65])
"""One, odd sizes, and the neighbors of each tile and vector size."""


def with_epilogue(anchor: Node, choice: str) -> Node:
    """Wrap an anchor into a fusion with one of a few epilogues; "bare" leaves it alone.

    Nodes that make its operands, such as the decoding of a weight, are in the fusion too.
    """
    before = [value.node for value in dict.fromkeys(anchor.operands) if value.node is not None]
    if choice == "bare" and not before:
        return anchor
    shape = anchor.result.shape
    body = Graph("body")
    inner = Builder(body)
    read = dict.fromkeys(value for node in (anchor, *before) for value in node.operands)
    outside = [value for value in read if value.node is None]
    known = {value: inner.input(value.name, value.type) for value in outside}
    for node in (*before, anchor):
        copy = inner.emit(node.op, *(known[value] for value in node.operands), **node.attrs)
        known[node.result] = copy.result
    sums = known[anchor.result]
    outer = Builder(Graph("outer", inputs=outside))

    def operand(name: str, *sizes: int) -> Value:
        outer.input(name, f32(*sizes))
        return inner.input(name, f32(*sizes))

    outputs = EPILOGUES[choice](inner, sums, operand, shape)
    for index, value in enumerate(outputs):
        inner.output(f"y{index}", value)
    return outer.emit("fusion", *outer.graph.inputs, body=body)


Operand = Callable[..., Value]


def _bias_relu6(g: Builder, sums: Value, operand: Operand, shape: tuple[int, ...]) -> list[Value]:
    biased = g.add(sums, operand("bias", shape[-1]))
    return [g.clamp(biased, min=0.0, max=6.0)]


def _residual(g: Builder, sums: Value, operand: Operand, shape: tuple[int, ...]) -> list[Value]:
    return [g.add(g.mul(sums, g.scalar(0.5)), operand("residual", *shape))]


def _two_results(g: Builder, sums: Value, operand: Operand, shape: tuple[int, ...]) -> list[Value]:
    return [sums, g.hard_swish(sums), g.gt(sums, g.scalar(0.0))]


def _gate(g: Builder, sums: Value, operand: Operand, shape: tuple[int, ...]) -> list[Value]:
    gate = operand("gate", shape[0], *([1] * (len(shape) - 2)), shape[-1])
    column = operand("column", *shape[:-1], 1)
    return [g.add(g.mul(sums, gate), column)]


def _masked(g: Builder, sums: Value, operand: Operand, shape: tuple[int, ...]) -> list[Value]:
    biased = g.add(sums, operand("bias", shape[-1]))
    return [g.where(g.gt(operand("mask", *shape), g.scalar(0.0)), biased, g.scalar(0.0))]


def _stepped(g: Builder, sums: Value, operand: Operand, shape: tuple[int, ...]) -> list[Value]:
    """An update by a scalar rate, and a mask of the sums within a range."""
    inside = g.logical_and(g.gt(sums, g.scalar(0.0)), g.lt(sums, g.scalar(1.5)))
    return [g.sub(operand("param", *shape), g.mul(operand("rate"), sums)), inside]


EPILOGUES: dict[str, Callable[[Builder, Value, Operand, tuple[int, ...]], list[Value]]] = {
    "bare": lambda g, sums, operand, shape: [sums],
    "bias_relu6": _bias_relu6,
    "residual": _residual,
    "two_results": _two_results,
    "gate": _gate,
    "masked": _masked,
    "stepped": _stepped,
}

epilogues = st.sampled_from(["bare", *EPILOGUES])


def error(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference, relative to the largest value of the oracle's result."""
    if found.dtype == np.bool_:
        return float(np.mean(found != expected))
    difference = np.abs(found.astype(np.float64) - expected)
    return float(difference.max() / max(np.abs(expected).max(), 1e-3))


def case_of(
    node: Node, emit: Callable[[Node, Device], Kernel], isa: str, seed: int, *, cores: int = CORES
) -> Case:
    """Emit a node's kernel and draw its operands."""
    rng = np.random.default_rng(seed)
    drawn = {value: draw_array(rng, value) for value in dict.fromkeys(node.operands)}
    operands = tuple(drawn[value] for value in node.operands)
    return Case(node, emit(node, device_of(isa, cores)), operands)


def check(
    cases: Sequence[Case],
    folder: Path,
    compiler: Sequence[str] = NATIVE,
    tolerance: float = TOLERANCE,
    **how: Any,
) -> None:
    """Run the cases and compare each result with the oracle's, for each thread count."""
    for case, runs in zip(cases, run_cases(cases, folder, compiler, **how), strict=True):
        for results in runs:
            for found, expected in zip(results, case.expected, strict=True):
                assert error(found, expected) < tolerance, f"{case.node}: {case.kernel.symbol}"


def check_with_zig(cases: Sequence[Case], folder: Path, device: str, **how: Any) -> None:
    """Run the cases as built by zig, which compiles for every device."""
    compiler, environment = zig_for(device)
    check(cases, folder, compiler, environment=environment, **how)


def zig_for(device: str) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return zig's command for a device, as the backend uses it, and its environment."""
    toolchain = find_toolchain(load_device(device))
    # Stripped, as in the backend: zig builds its libc again for programs with debug information.
    return (*toolchain.command, *OPTIMIZED, *WARNINGS, "-s"), toolchain.environment


def check_optimized(cases: Sequence[Case], folder: Path, **how: Any) -> None:
    """Run the cases as the backend builds them for this machine, without sanitizers: with masked
    moves. zig takes a fifth of gcc's time for unrolled tiles.
    """
    check_with_zig(cases, folder, "host", **how)


def check_on_arm(cases: Sequence[Case], folder: Path, tolerance: float = TOLERANCE) -> None:
    """Cross-compile for the Raspberry Pi 4 and run under user-mode emulation."""
    emulator = shutil.which("qemu-aarch64")
    if emulator is None:
        pytest.skip("qemu-aarch64 is not installed: apt install qemu-user")
    how = {"threads": (1, 2), "launcher": (emulator,), "tolerance": tolerance}
    check_with_zig(cases, folder, "rpi4", **how)


def backend_kernel(node: Node, device: Device) -> Kernel:
    """Emit a node's kernel with the backend's choice."""
    return CBackend(device).kernel(node)
