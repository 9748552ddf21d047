"""Try schedules of a kernel in a separate process, where a bad one does no harm.

TVM's own builder starts new processes in each round, and each first loads the tensor instructions
of all GPUs. That took 75 s on a slow core, beyond the build's limit of 30 s, so no build succeeded
there. CPU kernels do not need such instructions, so they are not loaded here, and one process
builds and times the schedules of all kernels in sequence.
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
"""Timeout of a schedule. Most take 0.3 s; a busy slow core may take a hundred times that."""

RUN_SECONDS = 0.1
"""Seconds for which a schedule is timed."""

USES = 256
"""Schedules per process, since compiled code stays loaded."""


INSTRUCTIONS = "tvm.s_tir.tensor_intrin"
"""TVM's module of tensor instructions, which it imports only for its table."""


@contextmanager
def without_instructions() -> Iterator[None]:
    """Prevent TVM from importing tensor instructions, unless they are loaded already."""
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
    """Return a lazily started process for trials."""
    pool = PopenPoolExecutor(
        max_workers=1,
        timeout=TRIAL_SECONDS,
        maximum_process_uses=USES,
        stderr=subprocess.DEVNULL,  # a kill is noticed by its missing result
    )
    try:
        yield pool
    finally:
        pool.shutdown()


@dataclass(frozen=True)
class Measuring:
    """MetaSchedule's builder and runner; `failures` grows with use."""

    builder: ms.builder.Builder
    runner: ms.runner.Runner
    failures: list[str]


def measuring(process: PopenPoolExecutor, target: tvm.target.Target) -> Measuring:
    """Return a builder and runner of kernels for a target, in a process."""
    failures: list[str] = []
    return Measuring(_Writer(), _Runner(process, target, failures), failures)


@derived_object
class _Writer(ms.builder.PyBuilder):  # type: ignore[misc]  # TVM has no types
    """Serializes schedules: the process that runs one also builds it."""

    def build(self, build_inputs: Sequence[ms.builder.BuilderInput]) -> list[object]:
        """Return each schedule's module as text, in place of a path."""
        return [ms.builder.BuilderResult(tvm.ir.save_json(each.mod), None) for each in build_inputs]


@derived_object
class _Runner(ms.runner.PyRunner):  # type: ignore[misc]  # TVM has no types
    """Builds and times schedules in a process."""

    def __init__(
        self, process: PopenPoolExecutor, target: tvm.target.Target, failures: list[str]
    ) -> None:
        super().__init__()
        self.process, self.target, self.failures = process, target, failures

    def run(self, runner_inputs: Sequence[ms.runner.RunnerInput]) -> list[object]:
        """Return the seconds per call of each schedule, or the error."""
        return [self._timed(str(each.artifact_path)) for each in runner_inputs]

    def _timed(self, module: str) -> object:
        try:
            seconds = self.process.submit(timed, module, self.target).result()
        except TimeoutError:
            return self._failed(f"a schedule took more than {TRIAL_SECONDS:.0f} s")
        except Exception as error:  # an exception in the process, or its end
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return self._failed(lines[-1] if lines else type(error).__name__)
        return ms.runner.LocalRunnerFuture([seconds], None)

    def _failed(self, words: str) -> object:
        self.failures.append(words)
        return ms.runner.LocalRunnerFuture(None, words)


def timed(module: str, target: tvm.target.Target) -> float:
    """In the trial process: build a module's kernel and return the seconds per call."""
    kernel = tvm.ir.load_json(module)["main"]
    built, arguments = build_one(kernel, target), arguments_of(kernel)
    return built.seconds(calls_in(RUN_SECONDS, built.seconds(1, arguments)), arguments)
