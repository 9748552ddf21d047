"""Compile many kernels into one program, run them in several threads, and return their results.

Each operand, result and scratch has its own allocation of exact size, so the address sanitizer
detects any access outside it. Results and scratch start as NaN. In every second run of a case, the
results overwrite the operands that the memory planner lets them overwrite.
"""

import math
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pockengine.backends.c.backend import IN_PLACE
from pockengine.backends.c.family import KernelFamily
from pockengine.backends.c.options import DEFAULT, KernelOptions
from pockengine.backends.native.kernel import Kernel
from pockengine.backends.native.runtime_files import RUNTIME, runtime_file
from pockengine.compiler.ir import BOOL, Builder, Graph, Node, Value
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.scalars import converted
from pockengine.compiler.memory.lifetime import overwritable
from pockengine.devices.schema import Cpu, Device, ToolchainSpec
from pockengine.tests.backends.c.objects import build_executable

WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wundef", "-Wno-psabi")
COMMON = ("-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-pthread")
SANITIZED = (
    *("-O0", "-g0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    # Each access is checked by a call: gcc then compiles kernels in three quarters of the time.
    "--param=asan-instrumentation-with-call-threshold=0",
)
OPTIMIZED = ("-O3",)
CORES = 4
"""Of a test's device. Kernels run on one thread to all of them: a share must not assume all."""
OF_TWO_CORES = (1, 3)
"""Teams for kernels that two threads share: one of them, and both beside an idle thread."""
MACHINES = {"avx512": "-march=x86-64-v4", "avx2": "-march=x86-64-v3", "sse2": "-march=x86-64"}


@dataclass(frozen=True)
class Case:
    """One node, the kernel emitted for it, and its operands' data."""

    node: Node
    kernel: Kernel
    operands: tuple[np.ndarray, ...]

    @cached_property
    def overwritten(self) -> tuple[int, ...]:
        """Position of the operand that each result may overwrite; -1 if there is none."""
        operands, places = list(self.node.operands), list[int]()
        for result in self.node.results:
            free = (operands.index(each) for each in overwritable(self.node, result, IN_PLACE))
            fits = (at for at in free if operands[at].type.nbytes == result.type.nbytes)
            places.append(next((at for at in fits if at not in places), -1))
        return tuple(places)

    @cached_property
    def expected(self) -> tuple[np.ndarray, ...]:
        """The oracle's results."""
        graph = Graph("case", inputs=list(self.node.operands), nodes=[self.node])
        graph.outputs = {value.name: value for value in self.node.results}
        names = [value.name for value in self.node.operands]
        return tuple(run(graph, dict(zip(names, self.operands, strict=True))).values())


def device_of(isa: str, cores: int = CORES) -> Device:
    """Return a device of this ISA for kernels that the test compiles itself."""
    arch = "aarch64" if isa == "neon" else "x86_64"
    cpu = Cpu(arch, "test", cores, isa, 64, 32768, 1 << 20, 16 << 20)
    return Device("test", "a test's device", 1 << 30, cpu, ToolchainSpec("native", "native"))


def emitter(
    family: KernelFamily, options: KernelOptions = DEFAULT
) -> Callable[[Node, Device], Kernel]:
    """Return a function that emits a node's kernel as chosen by the family."""
    return lambda node, device: family.emit(node, family.choose(node, device, options), device)


def new_builder() -> Builder:
    """Return a builder with an empty graph."""
    return Builder(Graph("test"))


def draw_array(rng: np.random.Generator, value: Value) -> np.ndarray:
    """Random data for a value: small whole and half numbers among normal ones."""
    array = rng.standard_normal(value.shape)
    if value.dtype is BOOL:
        return array > 0
    ties = rng.integers(-4, 5, value.shape) / 2
    drawn = np.where(rng.random(value.shape) < 0.3, ties, array)
    return converted(drawn.astype(np.float32), value.dtype)


def run_cases(
    cases: Sequence[Case],
    folder: Path,
    compiler: Sequence[str],
    threads: Sequence[int] = range(1, CORES + 1),
    launcher: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> list[list[tuple[np.ndarray, ...]]]:
    """Return the results of each case for each thread count."""
    source, program = folder / "cases.c", folder / "cases"
    source.write_text(_program(cases, threads))
    units = [source, runtime_file("pe_pool.c"), runtime_file("pe_threads.c")]
    build_executable(units, [*compiler, *COMMON], RUNTIME, program, environment)
    operands = b"".join(array.tobytes() for case in cases for array in case.operands)
    (folder / "operands").write_bytes(operands)
    ran = subprocess.run(
        [*launcher, str(program), str(folder / "operands"), str(folder / "results")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,  # threads that miss a barrier wait forever
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return _split((folder / "results").read_bytes(), cases, len(threads))


def _split(data: bytes, cases: Sequence[Case], runs: int) -> list[list[tuple[np.ndarray, ...]]]:
    offset, found = 0, []
    for case in cases:
        mine = []
        for _ in range(runs):
            arrays = []
            for value in case.node.results:
                count = math.prod(value.shape)
                array = np.frombuffer(data, value.dtype.numpy, count, offset)
                arrays.append(array.reshape(value.shape))
                offset += value.type.nbytes
            mine.append(tuple(arrays))
        found.append(mine)
    return found


def _program(cases: Sequence[Case], threads: Sequence[int]) -> str:
    kernels = {case.kernel.symbol: case.kernel.source for case in cases}
    calls, rows = [], []
    for index, case in enumerate(cases):
        values = [*case.node.operands, *case.node.results]
        arguments = ", ".join(f"p[{i}]" for i in range(len(values) + 1))
        calls.append(
            f"static void case_{index}(pe_worker *w, void *argument) {{\n"
            f"    void **p = argument;\n    {case.kernel.symbol}(w, {arguments});\n}}"
        )
        sizes = ", ".join(str(value.type.nbytes) for value in values)
        operands, results = len(case.node.operands), len(case.node.results)
        over = ", ".join(map(str, case.overwritten))
        row = f"case_{index}, {operands}, {results}, {{{sizes}}}, {{{over}}}"
        row += f", {case.kernel.scratch_bytes}"
        rows.append(f"    {{{row}}},")
    parts = [
        _HEAD,
        *kernels.values(),
        *calls,
        "static const struct test tests[] = {\n" + "\n".join(rows) + "\n};",
        f"static const int teams[] = {{{', '.join(map(str, threads))}}};",
        _MAIN,
    ]
    return "\n\n".join(parts)


_HEAD = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pe_pool.h"
#include "pe_vec.h"
#include "pe_math.h"
struct test {
    pe_job *job;
    int operands, results;
    size_t bytes[12];
    int overwritten[12];
    size_t scratch;
};"""

_MAIN = """static void *allocate(size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes ? bytes : 1) != 0) {
        exit(3);
    }
    memset(p, 0xff, bytes);
    return p;
}

int main(int argc, char **argv) {
    FILE *in = fopen(argv[argc - 2], "rb"), *out = fopen(argv[argc - 1], "wb");
    static pe_team team;
    for (size_t i = 0; in && out && i < sizeof tests / sizeof *tests; i++) {
        const struct test *t = &tests[i];
        void *p[13];
        for (int j = 0; j < t->operands; j++) {
            p[j] = allocate(t->bytes[j]);
            if (fread(p[j], 1, t->bytes[j], in) != t->bytes[j]) {
                return 4;
            }
        }
        for (size_t k = 0; k < sizeof teams / sizeof *teams; k++) {
            for (int j = t->operands; j < t->operands + t->results; j++) {
                p[j] = allocate(t->bytes[j]);
            }
            p[t->operands + t->results] = allocate(t->scratch);
            void *passed[13];
            memcpy(passed, p, sizeof p);
            for (int j = 0; j < t->results && (i + k) % 2; j++) {
                const int over = t->overwritten[j];
                if (over >= 0) {
                    passed[over] = memcpy(p[t->operands + j], p[over], t->bytes[over]);
                }
            }
            pe_team_start(&team, teams[k]);
            pe_team_run(&team, t->job, passed);
            pe_team_stop(&team);
            for (int j = t->operands; j < t->operands + t->results; j++) {
                fwrite(p[j], 1, t->bytes[j], out);
            }
            for (int j = t->operands; j <= t->operands + t->results; j++) {
                free(p[j]);
            }
        }
        for (int j = 0; j < t->operands; j++) {
            free(p[j]);
        }
    }
    return in && out ? fclose(out) : 5;
}
"""
