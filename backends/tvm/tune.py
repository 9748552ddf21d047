"""Tune the costliest kernels of a step with TVM's MetaSchedule, and record the winners.

Every kernel of the step is timed with its default schedule; for the costliest, MetaSchedule tries
schedules, which a separate process builds and runs. The best of them are timed again here,
interleaved with the default, and their results are compared with those of plain loops. Correct and
faster ones are stored in a table, by the kernel's text.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import islice
from statistics import median
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.support.popen_pool import PopenPoolExecutor
from tvm.tirx import PrimFunc, SeqStmt

from pockengine.backends.protocol import Progress
from pockengine.backends.tuned import TunedPlan, TunedTable
from pockengine.backends.tvm.built import (
    BuiltKernel,
    arguments_of,
    build,
    build_one,
    calls_in,
    results_of,
)
from pockengine.backends.tvm.library import legal, module_of, rows_of, target_of
from pockengine.backends.tvm.schedules import reductions, scheduled
from pockengine.backends.tvm.traces import applied, key_of, normalized, text_of
from pockengine.backends.tvm.trials import measuring, trial_process, without_instructions
from pockengine.devices.schema import Device
from pockengine.errors import CompileError, MissingPackage, RuntimeFailure

BEST = 3
"""Schedules of a search that are timed again."""

TURNS, CALL_SECONDS = 9, 0.02
NOISE = 0.02
"""Minimum relative gain for a schedule to win."""

TOLERANCE = 1e-4
"""Tolerance of a result with another order of sums, relative to its largest number."""

DEFAULT = "ours"
UNIT = f"ns of 1 thread, by TVM {tvm.__version__}"


Search = Callable[[Any, tvm.target.Target, int], Sequence[str]]
"""Returns traces of a kernel, fastest first, after this many trials."""

Timed = Callable[[Sequence[BuiltKernel], Sequence[Any]], Sequence[float]]
"""Returns the seconds per call of several built kernels with the same arguments."""


@dataclass(frozen=True)
class TvmProblem:
    """A kernel with its calls per step, and its default time per call."""

    name: str
    key: str
    calls: int
    function: Any
    seconds: float


def find_problems(model: onnx.ModelProto, device: Device) -> list[TvmProblem]:
    """Time a step's kernels with sums; return the costliest first, CompileError if there are
    none.
    """
    target = target_of(device)
    module = legal(module_of({"train": model}), target)
    calls = _calls(module)
    functions = {
        var.name_hint: function
        for var, function in module.functions_items()
        if isinstance(function, PrimFunc) and _sums(function)
    }
    rows = rows_of(device)
    library = build({name: scheduled(each, rows) for name, each in functions.items()}, target)
    found: dict[str, TvmProblem] = {}
    for name, function in functions.items():
        key = key_of(function)
        if key in found:
            each = found[key]
            found[key] = TvmProblem(
                each.name, key, each.calls + calls[name], function=function, seconds=each.seconds
            )
            continue
        seconds = _seconds([library[name]], arguments_of(function))[0]
        found[key] = TvmProblem(name, key, calls[name], function=function, seconds=seconds)
    if not found:
        raise CompileError("TVM has nothing to tune: no kernel of this step sums")
    return sorted(found.values(), key=lambda each: -each.calls * each.seconds)


@dataclass(frozen=True)
class TunerOptions:
    """Trials per kernel, how schedules are searched, and how kernels are timed."""

    trials: int
    search: Search | None = None
    timed: Timed | None = None


def tune(
    problems: Sequence[TvmProblem],
    device: Device,
    table: TunedTable,
    keep: Callable[[TunedTable], None],
    tell: Progress,
    options: TunerOptions,
) -> TunedTable:
    """Tune the problems that the table lacks; it is saved after each kernel."""
    trials, timed = options.trials, options.timed or _seconds
    target, rows = target_of(device), rows_of(device)
    with trial_process() as process:
        search = options.search or partial(searched, process=process)
        for number, problem in enumerate(problems, 1):
            digest = key_of(scheduled(problem.function, rows))
            row = table.rows.get(problem.key)
            title = f"{number} of {len(problems)}: {problem.name}, called {problem.calls} times"
            if row is not None and row.kernels == digest:
                tell(f"{title}: tuned already")
                continue
            tell(f"{title}: {trials} trials")
            traces = search(problem.function, target, trials)
            plan, seconds, default = _winner(
                problem.function, traces, target, rows=rows, timed=timed
            )
            figures = [round(1e9 * each) for each in (seconds, default)]
            table = table.with_rows(
                {
                    problem.key: TunedPlan(
                        plan, figures[0], DEFAULT, default_value=figures[1], kernels=digest
                    )
                }
            )
            keep(table)
    return table


def searched(
    function: Any, target: tvm.target.Target, trials: int, process: PopenPoolExecutor
) -> list[str]:
    """Search a kernel's schedules by MetaSchedule in a process.

    Every returned trace applies to the kernel; RuntimeFailure if none ran or none applies.
    """
    one_core = tvm.target.Target({**target.export(), "num-cores": 1})
    need_processes()
    measured = measuring(process, one_core)
    database = ms.tune_tasks(
        tasks=[_task(function, one_core, trials)],
        task_weights=[1.0],
        work_dir="",  # for its file databases
        max_trials_global=trials,
        num_trials_per_iter=min(16, trials),
        builder=measured.builder,
        runner=measured.runner,
        measure_callbacks=[ms.measure_callback.AddToDatabase()],
        cost_model="random",
        database=ms.database.MemoryDatabase(),
    )
    workload = database.commit_workload(normalized(function))
    records = database.get_top_k(workload, trials)
    traces = [text_of(record.trace) for record in records if _is_timed(record)]
    if not traces:
        why = f" ({measured.failures[0]})" if measured.failures else ""
        raise RuntimeFailure(
            f"MetaSchedule of TVM {tvm.__version__} ran no schedule of {trials}{why}; "
            "try more --trials"
        )
    return _replayable(function, traces)


def _replayable(function: Any, traces: Sequence[str]) -> list[str]:
    """Return the first traces that apply to a kernel again; RuntimeFailure if none does."""
    found = list(islice((trace for trace in traces if _applies(function, trace)), BEST))
    if not found:
        raise RuntimeFailure(
            f"none of {len(traces)} schedules found by MetaSchedule of TVM {tvm.__version__} "
            "applies to the kernel again; try more --trials"
        )
    return found


def _applies(function: Any, trace: str) -> bool:
    try:
        applied(function, trace)
    except ValueError:
        return False
    return True


def need_processes() -> None:
    """Raise MissingPackage if TVM lacks its dependency for processes."""
    lacking = [name for name in ("cloudpickle", "psutil") if find_spec(name) is None]
    if lacking:
        raise MissingPackage(
            f"TVM's tuner needs {' and '.join(lacking)}, not installed here: "
            "pip install 'apache-tvm[popen-pool]'"
        )


def _task(function: Any, target: tvm.target.Target, trials: int) -> ms.TuneContext:
    quiet = logging.getLogger("pockengine.tvm")
    quiet.setLevel(logging.ERROR)
    with without_instructions():
        return ms.TuneContext(
            mod=normalized(function),
            target=target,
            space_generator=_space(),
            search_strategy=_strategy(trials),
            rand_state=1,
            num_threads=1,
            logger=quiet,
        ).clone()


def _is_timed(record: Any) -> bool:
    return all(0 < float(each) < 1e9 for each in record.run_secs)


@derived_object
class _KeepKernel(ms.postproc.PyPostproc):  # type: ignore[misc]  # TVM has no types
    """Protects the search's kernel from the postprocessors that follow.

    All schedules of a search start from one module. TVM 0.27 annotates a root block by copying it
    without its body, and then changes loops in the shared body in place, if nothing else refers to
    them. Later schedules would start from those loops, and their traces would not apply to the
    kernel. A reference to each outermost loop makes TVM copy it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loops: list[Any] = []

    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        """Do nothing: the kernel comes with each schedule."""

    def apply(self, sch: Schedule) -> bool:
        """Refer to the outermost loops of a schedule, until the next one."""
        body = sch.mod["main"].body.block.body
        self.loops = list(body.seq) if isinstance(body, SeqStmt) else [body]
        return True

    def clone(self) -> "_KeepKernel":
        """Return a postprocessor for another search."""
        return _KeepKernel()


def _space() -> ms.space_generator.SpaceGenerator:
    """TVM's rules for CPUs, in one thread."""
    rule = ms.schedule_rule
    return ms.space_generator.PostOrderApply(
        sch_rules=[
            rule.InlineConstantScalars(),
            rule.AutoInline(
                into_producer=False,
                into_consumer=True,
                inline_const_tensor=True,
                disallow_if_then_else=True,
                require_injective=True,
                require_ordered=True,
                disallow_op=["tirx.exp"],
            ),
            rule.MultiLevelTiling(
                structure="SSRSRS",
                max_innermost_factor=64,
                reuse_write=rule.ReuseType(req="may", levels=[1, 2], scope="global"),
            ),
            rule.RandomComputeLocation(),
            rule.ParallelizeVectorizeUnroll(
                max_jobs_per_core=-1,
                max_vectorize_extent=64,
                unroll_max_steps=[0, 16, 64, 512],
                unroll_explicit=True,
            ),
        ],
        postprocs=[
            _KeepKernel(),
            ms.postproc.DisallowDynamicLoop(),
            ms.postproc.RewriteParallelVectorizeUnroll(),
            ms.postproc.RewriteReductionBlock(),
        ],
        mutator_probs={
            ms.mutator.MutateTileSize(): 0.9,
            ms.mutator.MutateComputeLocation(): 0.05,
            ms.mutator.MutateUnroll(): 0.05,
        },
    )


def _strategy(trials: int) -> ms.search_strategy.SearchStrategy:
    """Evolution from as many samples as there are trials, without a cost model."""
    return ms.search_strategy.EvolutionarySearch(
        population_size=max(trials, 32), init_min_unmeasured=min(trials, 32), genetic_num_iters=2
    )


def _winner(
    function: Any,
    traces: Sequence[str],
    target: tvm.target.Target,
    rows: int,
    timed: Timed,
) -> tuple[str, float, float]:
    """Return the winning plan, its seconds and the default's."""
    arguments = arguments_of(function)
    expected = results_of(build_one(function, target), arguments)
    plans = {DEFAULT: build_one(scheduled(function, rows), target)}
    for trace in traces:
        kernel = build_one(applied(function, trace), target)
        if _agree(results_of(kernel, arguments), expected):
            plans[trace] = kernel
    seconds = dict(zip(plans, timed(list(plans.values()), arguments), strict=True))
    best = min(seconds, key=lambda plan: seconds[plan])
    if seconds[best] > (1 - NOISE) * seconds[DEFAULT]:
        best = DEFAULT
    return best, seconds[best], seconds[DEFAULT]


def _sums(function: Any) -> bool:
    try:
        return bool(reductions(Schedule(tvm.IRModule({"main": function}))))
    except Exception:  # a function without blocks has no schedule
        return False


def _calls(module: tvm.IRModule) -> Counter[str]:
    """Count the calls of each kernel."""
    counted: Counter[str] = Counter()

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.Call) and expression.args:
            callee = expression.args[0]
            if isinstance(callee, tvm.ir.GlobalVar):
                counted[callee.name_hint] += 1

    for _, function in module.functions_items():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return counted


def _agree(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> bool:
    return all(
        np.array_equal(a, b)
        or bool(np.abs(a - b).max() <= TOLERANCE * float(np.abs(b).max(initial=0.0)))
        for a, b in zip(found, expected, strict=True)
    )


def _seconds(kernels: Sequence[BuiltKernel], arguments: Sequence[Any]) -> list[float]:
    """Time kernels interleaved; return the median of each."""
    slowest = max(kernel.seconds(1, arguments) for kernel in kernels)
    number = calls_in(CALL_SECONDS, slowest)
    times: list[list[float]] = [[] for _ in kernels]
    for _ in range(TURNS):
        for kernel, taken in zip(kernels, times, strict=True):
            taken.append(kernel.seconds(number, arguments))
    return [median(taken) for taken in times]
