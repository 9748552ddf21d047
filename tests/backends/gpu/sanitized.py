"""Kernels under a sanitizer: a program that runs them in the emulation, item by item.

Each pointer of a kernel has an allocation of exactly its bytes, so the address sanitizer detects
any access outside it. For the thread sanitizer each item of a launch is a thread; only its group's
barriers order it relative to others.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from pockengine.backends.gpu.backend import GpuBackend
from pockengine.backends.gpu.emulated import launch_rows
from pockengine.backends.gpu.kernel import GpuKernel, Parameter, Stage, define_kernel
from pockengine.backends.gpu.kernels import FAMILIES
from pockengine.backends.gpu.source import DIALECT
from pockengine.backends.native.runtime_files import (
    is_runner,
    runtime_sources,
)
from pockengine.compiler.ir import Graph, Node
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.scalars import converted
from pockengine.compiler.ops.attention import GRADIENTS
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.program import Program
from pockengine.tests.backends.c.objects import link, object_of
from pockengine.tests.backends.gpu.oracle import drawn
from pockengine.tests.compiler.every_op import Draw, arrays_of, case_of, graph_of
from pockengine.tests.compiler.op_case import OpCase

HERE = Path(__file__).parent
FLAGS = ("-std=gnu11", "-O1", "-g1", "-ffp-contract=fast", "-fno-math-errno", "-pthread", "-w")
GCC = ("gcc", *FLAGS)
BOUNDS = ("PE_GPU_BOUNDS", "address,undefined")
RACES = ("PE_GPU_RACES", "thread")
NONE = -1

Sanitizer = tuple[str, str]

ONE_DRAW = settings(
    max_examples=1,
    deadline=None,
    phases=[Phase.generate],
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True)
class Watched:
    """A kernel, the sizes of its pointers in bytes, and their contents; each is followed by NaN."""

    kernel: GpuKernel
    sizes: tuple[int, ...]
    operands: tuple[np.ndarray, ...]
    node: Node | None = None

    @property
    def memory(self) -> bytes:
        """Return the contents of all pointers before the first launch."""
        read = b"".join(array.tobytes() for array in self.operands)
        return read.ljust(sum(self.sizes), b"\xff")


def watch(node: Node, operands: Sequence[np.ndarray], backend: GpuBackend) -> Watched:
    """Return the kernel of a node, with its operands."""
    kernel = backend.gpu_kernel(node)
    sizes = [value.type.nbytes for value in (*node.operands, *node.results)]
    scratch = [kernel.scratch_bytes] if kernel.scratch_bytes else []
    return Watched(kernel, (*sizes, *scratch), tuple(map(np.asarray, operands)), node)


def watch_case(case: OpCase, backend: GpuBackend) -> Watched:
    """Return the kernel of a case, with random operands."""
    graph = graph_of(case)
    arrays = drawn(graph)
    if case.op in GRADIENTS:  # row maxima and sums
        arrays["x4"] = np.abs(arrays["x4"]) + 10
    return watch(graph.nodes[0], [arrays[value.name] for value in graph.inputs], backend)


def draw_operands(node: Node, seed: int = 0) -> list[np.ndarray]:
    """Draw operands of a node: possible indices are 0 or 1."""
    rng = np.random.default_rng(seed)
    return [
        converted(rng.standard_normal(value.shape, np.float32), value.dtype)
        if value.dtype.is_float
        else rng.integers(0, 2, value.shape).astype(value.dtype.numpy)
        for value in node.operands
    ]


def watch_every_op(draw: Draw, backend: GpuBackend) -> list[Watched]:
    """Draw a case of each op with a kernel, except ops that write params."""
    cases = []
    for op in sorted(op for op in FAMILIES if not lookup(op).writes):
        case = case_of(op, draw)
        arrays = arrays_of(case, draw(st.integers(0, 99)))
        cases.append(watch(graph_of(case).nodes[0], arrays, backend))
    return cases


def planted(body: str, groups: int = 1, floats: int = 64) -> Watched:
    """Return a kernel of groups of 64 items: it reads `x`, of this many floats, and writes `y`."""
    parameters = [Parameter("float", "x"), Parameter("float", "y", written=True)]
    kernel = define_kernel("planted", parameters, [Stage(groups, 64, {}, [body])])
    return Watched(kernel, (4 * floats, 4 * floats), (np.zeros(2 * floats, np.float32),))


class Sanitized:
    """A program of kernels, built by gcc with one of its sanitizers, or none.

    `compiled` objects have kernels that the cases only declare.
    """

    def __init__(
        self,
        cases: Sequence[Watched],
        sanitizer: Sanitizer | None,
        folder: Path,
        compiled: Sequence[Path] = (),
    ) -> None:
        self._cases, self._folder = cases, folder
        self._program = folder / "sanitized"
        (folder / "cases.c").write_text(_text(cases), encoding="utf-8")
        (folder / "operands").write_bytes(b"".join(case.memory for case in cases))
        macro: Sequence[str] = ()
        watched: Sequence[str] = ()
        if sanitizer is not None:
            macro = (f"-D{sanitizer[0]}",)
            watched = (f"-fsanitize={sanitizer[1]}", "-fno-sanitize-recover=all")
        sources: dict[Path, Sequence[str]] = {
            folder / "cases.c": watched,
            DIALECT / "cpu" / "pe_gpu_cpu.c": macro,
            HERE / "sanitized.c": (),
        }
        places = [DIALECT, DIALECT / "cpu"]
        objects = [object_of(x, [*GCC, *flags], HERE, places) for x, flags in sources.items()]
        link([*objects, *compiled], [*GCC, *watched], self._program)

    def run(
        self, order: int = 0, left_out: int = NONE, lacking: int = NONE, only: int = NONE
    ) -> subprocess.CompletedProcess[str]:
        """Run all kernels, or one, optionally without a barrier, or with an allocation cut by a
        number.
        """
        files = [str(self._folder / "operands"), str(self._folder / "results")]
        numbers = map(str, (order, left_out, lacking, only))
        command = [str(self._program), *files, *numbers]
        return _run(command)

    def barriers(self, order: int = 0) -> list[tuple[int, int]]:
        """Run all kernels, without undefined behavior; return each one's barriers reached, as
        numbers of the case and of the barrier.
        """
        done = self.run(order)
        assert done.returncode == 0, done.stderr[-4000:]
        pairs = (line.split() for line in done.stdout.splitlines())
        return [(int(case), int(barrier)) for case, barrier in pairs]

    def results(self) -> list[tuple[np.ndarray, ...]]:
        """Return the results of each case of the last run."""
        return [
            memory[len(case.operands) :]
            for case, memory in zip(self._cases, self.memory(), strict=True)
        ]

    def memory(self) -> list[tuple[np.ndarray, ...]]:
        """Return the operands and results of each case after the last run."""
        data, at, found = (self._folder / "results").read_bytes(), 0, []
        for case in self._cases:
            assert case.node is not None
            first, arrays = at, []
            for value in (*case.node.operands, *case.node.results):
                array = np.frombuffer(data, value.dtype.numpy, value.type.size, first)
                arrays.append(array.reshape(value.shape))
                first += value.type.nbytes
            found.append(tuple(arrays))
            at += sum(case.sizes)
        return found

    def check(self, tolerance: float, order: int = 0) -> None:
        """Run all kernels; assert that nothing is reported, and that results equal the oracle's."""
        self.barriers(order)
        for case, found in zip(self._cases, self.results(), strict=True):
            assert case.node is not None
            graph = Graph("case", inputs=list(case.node.operands), nodes=[case.node])
            graph.outputs = {value.name: value for value in case.node.results}
            names = (value.name for value in case.node.operands)
            with np.errstate(all="ignore"):
                oracle = run(graph, dict(zip(names, case.operands, strict=True)))
            for array, expected in zip(found, oracle.values(), strict=True):
                np.testing.assert_allclose(
                    array, expected, rtol=tolerance, atol=tolerance, err_msg=str(case.node)
                )


def _text(cases: Sequence[Watched]) -> str:
    texts, rows = ['#include "sanitized.h"'], []
    for kernel in {case.kernel.symbol: case.kernel for case in cases}.values():
        calls, launches = launch_rows(kernel)
        rows_of = "\n".join(launches)
        table = f"static const pe_gpu_launch {kernel.symbol}[] = {{\n{rows_of}\n}};"
        texts += [kernel.text, *calls, table]
    for case in cases:
        sizes = ", ".join(map(str, case.sizes))
        symbol, count = case.kernel.symbol, len(case.kernel.launches)
        row = f'"{symbol}", {symbol}, {count}, {len(case.sizes)}, {{{sizes}}}'
        rows.append(f"{{{row}}},")
    texts.append("const sanitized_case sanitized_cases[] = {\n" + "\n".join(rows) + "\n};")
    return "\n".join([*texts, f"const int sanitized_count = {len(cases)};\n"])


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program; skip if the thread sanitizer rejects the kernel's address layout."""
    # By default the sanitizer waits for other threads for 1 s at exit; there are none.
    options = {"TSAN_OPTIONS": "halt_on_error=1 atexit_sleep_ms=0"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env=options
    )
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("gcc's thread sanitizer cannot start here: sysctl vm.mmap_rnd_bits=28")
    return done


def run_step(
    program: Program, backend: GpuBackend, sanitizer: Sanitizer, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run a training step in its planned memory, with one launching thread."""
    backend.write(program, folder)
    macro, kind = sanitizer
    runtime = folder / "runtime"
    objects = []
    own = [path for path in runtime_sources(runtime) if not is_runner(path)]
    made = [path for path in folder.glob("*.c") if path.name != "main.c"]
    for source in (*made, *own):
        watched = source.name.startswith("kernels_")
        flags = [f"-fsanitize={kind}"] if watched else [f"-D{macro}"]
        objects.append(object_of(source, [*GCC, *flags], runtime, [folder]))
    main = [*GCC, f"-DPROGRAM=pe_program_{program.name}"]
    objects.append(object_of(HERE / "sanitized_step.c", main, runtime, [folder]))
    step = folder / "step"
    link(objects, [*GCC, f"-fsanitize={kind}"], step)
    return _run([str(step)])
