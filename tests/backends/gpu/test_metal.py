"""Kernels in the Metal Shading Language: clang compiles them, and a CPU runs them.

Apple's compiler takes them too where there is one. No GPU of Apple has run them.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pockengine.backends.gpu.backend import GpuBackend
from pockengine.backends.gpu.metal import metal_text
from pockengine.backends.gpu.source import METAL, source_of
from pockengine.compiler.compile import compile_entries
from pockengine.devices import load_device
from pockengine.errors import BuildError, CompileError
from pockengine.tests.backends.gpu.cases import CONVOLUTIONS, EMBEDDINGS, KINDS, floats
from pockengine.tests.backends.gpu.metal_kernels import SHUFFLED, MetalProgram, compile_metal
from pockengine.tests.backends.gpu.sanitized import (
    ONE_DRAW,
    planted,
    watch_case,
    watch_every_op,
)
from pockengine.tests.compiler.every_op import graph_of
from pockengine.tests.compiler.op_case import OpCase

BACKEND = GpuBackend(load_device("host"))

ATTRIBUTES = {
    "buffer",
    "max_total_threads_per_threadgroup",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
}
"""Attributes of Metal that the texts have; clang ignores them."""

FAULTS = {
    "y[0] = exp(x[0]);": "undeclared identifier 'exp'",
    "y[0] = metal::erf(x[0]);": "no member named 'erf' in namespace 'metal'",
    "y[0] = (float)(double)x[0];": "double",
    "y[0] = pe_group_sum(x, 0, 1, 0.0f);": "no matching function for call to 'pe_group_sum'",
    "PE_LOCAL float *z = y; y[0] = *z;": "cannot initialize .* '__local float",
    "PE_SHARED(float, s, 1); { PE_SHARED(float, t, 1); }": "outermost scope of a kernel",
}
"""Statements that Metal refuses, with clang's error."""

ANY_SPACE = b"addrspace(4)"
"""LLVM's address space of pointers without one."""


def text_of(*kinds: str) -> str:
    cases = [case for kind in kinds for case in KINDS[kind]]
    return source_of([BACKEND.gpu_kernel(graph_of(case).nodes[0]) for case in cases], METAL)


@pytest.mark.parametrize("kind", KINDS)
def test_every_size_equals_the_oracle(kind: str, tmp_path: Path) -> None:
    cases = [watch_case(case, BACKEND) for case in KINDS[kind]]
    MetalProgram(cases, tmp_path).check(1e-4, SHUFFLED)


@ONE_DRAW
@given(data=st.data())
def test_every_op_equals_the_oracle(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cases = watch_every_op(data.draw, BACKEND)
    MetalProgram(cases, tmp_path_factory.mktemp("ops")).check(2e-4, SHUFFLED)


@pytest.mark.parametrize("kind", KINDS)
def test_apples_compiler_accepts_the_kernels(kind: str, tmp_path: Path) -> None:
    xcrun = shutil.which("xcrun")
    find = [xcrun or "false", "-sdk", "macosx", "-f", "metal"]
    if subprocess.run(find, capture_output=True, check=False).returncode != 0:
        pytest.skip("no compiler for Metal: install Xcode")
    source = tmp_path / "kernels.metal"
    source.write_text(text_of(kind), encoding="utf-8")
    command = [*find[:3], "metal", "-fno-fast-math", "-c", str(source), "-o", f"{source}.air"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


@pytest.mark.parametrize("body", FAULTS)
def test_what_metal_refuses_is_refused(body: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=FAULTS[body]):
        compile_metal(source_of([planted(body).kernel], METAL), tmp_path, "-fsyntax-only")


def test_every_pointer_has_an_address_space(tmp_path: Path) -> None:
    flags = ("-O0", "-target", "spir64", "-S", "-emit-llvm")
    assert ANY_SPACE not in compile_metal(text_of(*KINDS), tmp_path, *flags)
    unnamed = text_of("rows").replace("PE_PRIVATE float", "float")
    assert ANY_SPACE in compile_metal(unnamed, tmp_path, *flags)


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_are_those_of_metal(kind: str) -> None:
    assert set(re.findall(r"\[\[(\w+)", text_of(kind))) == ATTRIBUTES


def test_a_program_has_a_text_with_its_launches(tmp_path: Path) -> None:
    cases = CONVOLUTIONS[0], EMBEDDINGS[1]
    graphs = {f"case{number}": graph_of(case) for number, case in enumerate(cases)}
    text = metal_text(compile_entries("cases", graphs, target=BACKEND.target()))
    compile_metal(text, tmp_path, "-fsyntax-only")
    kernel = BACKEND.gpu_kernel(graphs["case1"].nodes[0])
    launches = [
        f"{one.function}: {one.groups} threadgroups of {one.items} threads"
        for one in kernel.launches
    ]
    assert len(launches) == 3
    assert f"// {', then '.join(launches)}; 2400 bytes of scratch memory\n" in text


def test_more_pointers_than_buffers_are_refused() -> None:
    node = graph_of(OpCase("concat", (floats(2),) * 31, {"axis": 0})).nodes[0]
    with pytest.raises(CompileError, match="has 32 pointers, and a kernel of Metal takes up to 31"):
        source_of([BACKEND.gpu_kernel(node)], METAL)
