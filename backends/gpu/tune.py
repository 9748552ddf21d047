"""The GPU tuner: measures tilings of products within the training step.

The step is compiled with the likeliest plan of every problem, then with the second of each, and so
on, and its launches are timed in place. So operands are as cold as in training, and the number of
programs is the number of plans per problem, for any number of problems.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from pockengine.backends.gpu.backend import GpuBackend, anchor_of
from pockengine.backends.gpu.cuda import CudaBackend
from pockengine.backends.gpu.driven import DrivenBackend
from pockengine.backends.gpu.opencl import OpenClBackend
from pockengine.backends.gpu.source import CUDA, DIALECT, OPENCL
from pockengine.backends.gpu.vulkan import VulkanBackend
from pockengine.backends.native.profile import (
    KernelTime,
    RunProfile,
    Timed,
    example_inputs,
    profile_step,
)
from pockengine.backends.native.tuning import Figure, Forced, Meter, TuningProblem, list_problems
from pockengine.backends.picking import P, Picker, PlanCandidate, cheapest
from pockengine.backends.protocol import Progress
from pockengine.compiler.ir import Node
from pockengine.compiler.ops import lookup
from pockengine.compiler.program import Program
from pockengine.devices import Device
from pockengine.errors import CompileError

UNIT = "ns on a GPU"

NOISE = 0.02
"""Minimum relative gain, in median and best step, for a plan to win."""

STEPS = 10
"""Steps per plan, of which medians are taken."""


class GpuTuner:
    """Lists and measures the plans of a step's products on a device's GPU.

    CompileError for `bf16` with a backend without tensor cores.
    """

    def __init__(self, device: Device, bf16: bool = False) -> None:
        if bf16 and device.backend != CUDA:
            raise CompileError(f"backend {device.backend} has no option bf16; leave it out")
        self.device, self._bf16 = device, bf16

    def backend(self, pick: Picker = cheapest) -> DrivenBackend:
        """Return the device's backend with a picker."""
        if self.device.backend == CUDA:
            return CudaBackend(self.device, self._bf16, pick)
        kind = OpenClBackend if self.device.backend == OPENCL else VulkanBackend
        return kind(self.device, pick)

    def problems(self, nodes: Iterable[Node], plans: int) -> list[TuningProblem]:
        """List the problems of a step's products, and the likeliest plans of each."""
        products = [node for node in nodes if lookup(anchor_of(node)).product]
        return list_problems(products, self._planner, plans, DIALECT)

    def meter(
        self,
        compiled: Callable[[Timed], Program],
        run: RunProfile | None = None,
        progress: Progress | None = None,
    ) -> Meter:
        """Return a meter that runs steps of the compiled program; `run` is as in profile_step."""
        tell = progress or (lambda _: None)

        def measure(problems: Sequence[TuningProblem]) -> list[list[Figure]]:
            figures: dict[str, list[Figure]] = {problem.key: [] for problem in problems}
            rounds = max(len(problem.kernels) for problem in problems)
            for number in range(rounds):
                tell(f"plan {number + 1} of {rounds} of each problem: compiles, and trains")
                plans = {
                    problem.key: list(problem.kernels)[number]
                    for problem in problems
                    if number < len(problem.kernels)
                }
                backend = self.backend(Forced(plans))
                program = compiled(backend)
                inputs = example_inputs(program.entries["train"].graph)
                times = profile_step(program, backend, inputs, steps=STEPS, run=run)
                found = self._figures(times)
                for key in plans:
                    figures[key].append(found[key])
            return [figures[problem.key] for problem in problems]

        return Meter(UNIT, NOISE, measure, at_once=1 << 30)

    def _planner(self, pick: Picker) -> GpuBackend:
        return GpuBackend(self.device, self._bf16, pick)

    def _figures(self, times: Sequence[KernelTime]) -> Mapping[str, Figure]:
        """Return the time per call of each problem."""
        calls: dict[str, list[KernelTime]] = {}
        for time in times:
            recorder = _Recorder()
            self._planner(recorder).choose(time.node)
            for key in recorder.keys:
                calls.setdefault(key, []).append(time)
        return {
            key: Figure(
                sum(time.median_ns for time in same) / len(same),
                sum(time.least_ns for time in same) / len(same),
            )
            for key, same in calls.items()
        }


class _Recorder:
    """A picker that records the keys of its problems."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def __call__(self, key: str, candidates: Sequence[PlanCandidate[P]]) -> P:
        self.keys.append(key)
        return cheapest(key, candidates)
