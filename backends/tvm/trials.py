"""Tries schedules of a kernel in a process of its own, where a bad one does no harm.

TVM's own builder starts processes anew in each round, and each of them first reads the tensor
instructions of all GPUs. That took 75 s of a slow core, where a build may take 30: none was ever
built there. No kernel of a CPU has such instructions, so here nothing reads them, and one process
builds and times the schedules of all kernels, one after the other.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.support.popen_pool import PopenPoolExecutor

from pockengine.backends.tvm.built import arguments_of, build_one, calls_in

TRIAL_SECONDS = 300.0
"""When a schedule is given up. Most take 0.3 s; a busy slow core may take a hundred times that."""

RUN_SECONDS = 0.1
"""For how long a schedule is timed."""

USES = 256
"""Schedules after which a fresh process goes on: what LLVM has built stays in one."""


INSTRUCTIONS = "tvm.s_tir.tensor_intrin"
"""TVM's module of tensor instructions, which it imports for its table of them alone."""


@contextmanager
def without_instructions() -> Iterator[None]:
    """Let TVM import no tensor instructions, unless they are here already."""
    if INSTRUCTIONS in sys.modules:
        yield
        return
    sys.modules[INSTRUCTIONS] = ModuleType(INSTRUCTIONS)
    try:
        yield
    finally:
        del sys.modules[INSTRUCTIONS]


@contextmanager
def trial_process() -> Iterator[PopenPoolExecutor]:
    """Open a process for trials; it starts with the first."""
    pool = PopenPoolExecutor(
        max_workers=1,
        timeout=TRIAL_SECONDS,
        maximum_process_uses=USES,
        stderr=subprocess.DEVNULL,  # what kills it is told by what it leaves undone
    )
    try:
        yield pool
    finally:
        pool.shutdown()


@dataclass(frozen=True)
class Measuring:
    """What MetaSchedule has its schedules built and timed by; `failures` grow with its use."""

    builder: ms.builder.Builder
    runner: ms.runner.Runner
    failures: list[str]


def measuring(process: PopenPoolExecutor, target: tvm.target.Target) -> Measuring:
    """Return what builds and times kernels for a target in a process."""
    failures: list[str] = []
    return Measuring(_Writer(), _Runner(process, target, failures), failures)


@derived_object
class _Writer(ms.builder.PyBuilder):  # type: ignore[misc]  # TVM has no types
    """Writes schedules down: the process that runs one builds it too."""

    def build(self, build_inputs: Sequence[ms.builder.BuilderInput]) -> list[object]:
        """Return each schedule's module, as text where MetaSchedule wants a path."""
        return [ms.builder.BuilderResult(tvm.ir.save_json(each.mod), None) for each in build_inputs]


@derived_object
class _Runner(ms.runner.PyRunner):  # type: ignore[misc]  # TVM has no types
    """Has a process build and time schedules."""

    def __init__(
        self, process: PopenPoolExecutor, target: tvm.target.Target, failures: list[str]
    ) -> None:
        super().__init__()
        self.process, self.target, self.failures = process, target, failures

    def run(self, runner_inputs: Sequence[ms.runner.RunnerInput]) -> list[object]:
        """Return the seconds of a call of each schedule, or why there are none."""
        return [self._timed(str(each.artifact_path)) for each in runner_inputs]

    def _timed(self, module: str) -> object:
        try:
            seconds = self.process.submit(timed, module, self.target).result()
        except TimeoutError:
            return self._failed(f"a schedule took more than {TRIAL_SECONDS:.0f} s")
        except Exception as error:  # what the process raised, or that it ended
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return self._failed(lines[-1] if lines else type(error).__name__)
        return ms.runner.LocalRunnerFuture([seconds], None)

    def _failed(self, words: str) -> object:
        self.failures.append(words)
        return ms.runner.LocalRunnerFuture(None, words)


def timed(module: str, target: tvm.target.Target) -> float:
    """Build a module's kernel, in the process for it, and return the seconds of a call."""
    kernel = tvm.ir.load_json(module)["main"]
    built, arguments = build_one(kernel, target), arguments_of(kernel)
    return built.seconds(calls_in(RUN_SECONDS, built.seconds(1, arguments)), arguments)
