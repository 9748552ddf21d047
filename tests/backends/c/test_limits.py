"""A program that exceeds a device's addresses or memory is refused, and its C does not compile."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pockengine.backends.artifact import write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.backends.native.limits import largest_object, static_assertion
from pockengine.backends.native.program import generate
from pockengine.backends.placement import Layout
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.program import Program
from pockengine.devices import load_device
from pockengine.devices.schema import Device
from pockengine.errors import CompileError
from pockengine.tests.backends.c.programs import point_graph


def wide_graph(elements: int) -> Graph:
    """A trained scalar over this many inputs: an arena of eight bytes per input."""
    g = Builder(Graph("wide"))
    x = g.input("x", TensorType(F32, (elements,)))
    away = g.sub(x, g.param("center", g.graph.constants[g.scalar(0.5)]))
    g.output("away", away)
    g.output("loss", g.reduce_mean(g.square(away), axes=(0,)))
    return g.graph


def refusal(elements: int, device: Device) -> str:
    backend = CBackend(device)
    program = compile_program(wide_graph(elements), target=backend.target())
    with pytest.raises(CompileError) as caught:
        generate(program, backend)
    return str(caught.value)


def test_more_than_32_bits_address_is_refused() -> None:
    dsp = replace(load_device("snapdragon-dsp"), memory_bytes=1 << 40)
    assert dsp.address_bits == 32
    message = refusal(4_300_000_320 // 8, dsp)
    assert "takes 4,300,00" in message
    assert "snapdragon-dsp addresses 2,147,483,647 (32 bits): use a smaller batch" in message


@pytest.mark.parametrize("name", ["snapdragon-dsp", "rpi4", "host"])
def test_more_than_the_memory_is_refused(name: str, tmp_path: Path) -> None:
    device = load_device(name)
    backend = CBackend(device)
    program = compile_program(wide_graph(device.memory_bytes // 8), target=backend.target())
    with pytest.raises(CompileError, match=f"{name} has {device.memory_bytes:,} bytes of memory"):
        write_artifact(program, backend, tmp_path / "wide")
    assert not list(tmp_path.iterdir())


def test_tensors_that_kernels_cannot_count_are_refused() -> None:
    message = refusal(2**31, replace(load_device("rpi4"), memory_bytes=1 << 40))
    assert "%x" in message
    assert "2,147,483,648 elements" in message


def test_what_fits_is_accepted() -> None:
    backend = CBackend(load_device("snapdragon-dsp"))
    program = compile_program(wide_graph(1 << 20), target=backend.target())
    assert "_Static_assert" in generate(program, backend)["program.c"]


@pytest.mark.parametrize(("bits", "excess"), [(32, 0), (32, 1), (64, 0), (64, 1)])
def test_the_assertion_holds_up_to_the_largest_object(bits: int, excess: int) -> None:
    program = compile_program(point_graph())
    layout = Layout((), 4096, largest_object(bits) + excess - program.arena_bytes - 4096)
    assert compiles(program, layout, bits) == (not excess)


def compiles(program: Program, layout: Layout, bits: int) -> bool:
    source = f"typedef int unit;\n#define SIZE_MAX UINT{bits}_MAX\n"
    source = f"#include <stdint.h>\n#undef SIZE_MAX\n{source}"
    source += static_assertion(program, layout)
    command = ["gcc", "-std=c11", "-fsyntax-only", "-x", "c", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "exceeds the address space" in done.stderr, done.stderr
    return done.returncode == 0
