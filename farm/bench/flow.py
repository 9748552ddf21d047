"""The bench, scheme by scheme: compile, train on the board, compare with PyTorch, measure.

An error in one scheme is recorded as its failure, and the others continue. An engine that computed
wrong numbers is not timed.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from pockengine import __version__
from pockengine.compiled import Compiled
from pockengine.compiler.memory.timeline import live_bytes
from pockengine.farm.bench.case import Case, dataset_of, make_case, to_torch_layout, train_in_torch
from pockengine.farm.bench.check import Check, compare
from pockengine.farm.bench.counting import (
    count_runtimes,
    count_steps,
    counts,
    describe_wall_time,
)
from pockengine.farm.bench.graphics import (
    check_gpu,
    engine_of,
    gpu_libraries,
    why_not_timed,
)
from pockengine.farm.bench.integers import check_integers, train_integers
from pockengine.farm.bench.peers import (
    HostPeers,
    what_is_missing,
)
from pockengine.farm.bench.predictions import oracle_prediction
from pockengine.farm.bench.preview import first_lines
from pockengine.farm.bench.result import (
    F32,
    INT8,
    BenchOptions,
    BenchResult,
    CheckedScheme,
    Keep,
    titled,
)
from pockengine.farm.bench.room import how_to_train, without_room
from pockengine.farm.bench.run import BoardRun, train_on_board
from pockengine.farm.bench.schemes import check_schemes, name_of
from pockengine.farm.boards.board import Board, Local
from pockengine.farm.boards.conditions import Conditions, steady_from, watched
from pockengine.farm.jobs.checkout import checkout
from pockengine.farm.load import watching
from pockengine.farm.progress import say, step
from pockengine.farm.references.job import JobData
from pockengine.farm.references.timing import Timing
from pockengine.farm.results.setup import EngineRun, Setup, finite_or_large
from pockengine.farm.transports.transport import Progress, Transport
from pockengine.options import CompileOptions


def run_bench(options: BenchOptions, folder: Path, keep: Keep = lambda _: None) -> BenchResult:
    """Run every scheme on the board, then measure those that computed the right numbers.

    `keep` stores records as they come. Engines that cannot run are refused before the board is
    opened.
    """
    check_schemes(options.schemes)
    check_gpu(options.backend, options.board, options.int8)
    plans = how_to_train(options)
    for line in first_lines(options):
        say(line)
    with step(f"{options.model}: graph, schemes, data"):
        case = make_case(options.model, options.batch, options.steps, schemes=options.schemes)
    result = BenchResult(_setup(options, case), keep)
    for plan, why in without_room(case, options).items():
        plans.remove(plan)
        _leave_out(result, options, titled(name_of(plan[0]), plan[1]), why)
    trained = []
    with contextlib.ExitStack() as stack:
        with step(f"connect to {options.board.name}"):
            transport = stack.enter_context(checkout(options.board))
        for scheme, dtype in plans:
            name = name_of(scheme)
            with result.failing(titled(name, dtype)):
                place = folder / name / dtype
                place.mkdir(parents=True)
                trained.append(
                    _train(options, case, (scheme, dtype), transport=transport, folder=place)
                )
                _add_run(result, trained[-1])
    _measure(options, case, result, trained=trained, folder=folder)
    return result


def _leave_out(result: BenchResult, options: BenchOptions, title: str, why: str) -> None:
    """Print why a scheme does not fit; it is a failure if the user named it."""
    if options.by_default:
        result.note(f"{title}: left out: {why}")
    else:
        result.failures[title] = why


def _measure(
    options: BenchOptions,
    case: Case,
    result: BenchResult,
    trained: list[CheckedScheme],
    folder: Path,
) -> None:
    """Measure the schemes that passed, as far as the board can."""
    right = [one for one in trained if not one.check.problems]
    reason = why_not_timed(options.backend, options.board)
    if reason is not None:
        result.note(reason)
    elif counts(options.board):
        count_steps(options, result, right, folder)
        floats = [one for one in right if one.dtype == F32]
        count_runtimes(options, case, result, right=floats, folder=folder)
    elif options.board.emulated:
        for one in right:
            result.note(describe_wall_time(one))
    elif isinstance(options.board.place, Local):
        _time(options, result, right, folder)
    else:
        for one in right:
            add_remote(result, one)


def _setup(options: BenchOptions, case: Case) -> Setup:
    board, work = options.board, (case.model, dataset_of(case.model), case.batch)
    return Setup(*work, options.threads, board.device, board.name, emulated=board.emulated)


def _train(
    options: BenchOptions, case: Case, how: tuple[str, str], transport: Transport, folder: Path
) -> CheckedScheme:
    """Compile a scheme in a dtype, train it on the board and in PyTorch, and compare."""
    scheme, dtype = how
    name, int8, data = name_of(scheme), dtype == INT8, case.for_scheme(scheme)
    title = titled(name, dtype)
    with step(f"{title}: compile and build for {options.board.device}") as running:
        compiled = case.compile(
            CompileOptions(scheme=scheme, device=options.board.device, backend=options.backend),
            folder / "artifact",
            int8=int8,
            progress=running.say,
        )
        libraries = gpu_libraries(options.backend, options.board, compiled, folder)
    with (
        step(f"{title}: send to {transport.board} and train {data.steps} steps") as running,
        _watching(options.board, transport) as conditions,
    ):
        train = train_integers if int8 else partial(_train_floats, libraries)
        run = train(
            transport, compiled, data, options.threads, folder=folder, progress=running.moved
        )
        running.detail = case.learned(run.losses)
    judge, reference = (check_integers, "the oracle and PyTorch") if int8 else (_check, "PyTorch")
    with step(f"{title}: the same in {reference}, and compare") as running:
        losses, check = judge(compiled, data, run)
        errors = f"losses within {check.loss_error:.1e}, weights {check.weight_error:.1e}"
        running.detail = "; ".join(filter(None, [errors, check.note]))
    found = partial(CheckedScheme, data=data, losses=losses, run=run, check=check)
    counted = options.int8 and counts(options.board) and not run.instructions
    return found(
        name=name,
        dtype=dtype,
        engine=engine_of(options.backend),
        artifact=compiled.artifact,
        live=live_bytes(compiled.program.entries["train"], compiled.program.alignment),
        conditions=conditions,
        predicted=oracle_prediction(compiled, data) if counted else None,
    )


def _train_floats(
    libraries: Mapping[str, Path],
    transport: Transport,
    compiled: Compiled,
    data: JobData,
    threads: int,
    folder: Path,
    progress: Progress,
) -> BoardRun:
    return train_on_board(
        transport,
        compiled.artifact,
        data,
        threads=threads,
        folder=folder,
        progress=progress,
        libraries=libraries,
    )


def _check(compiled: Compiled, data: JobData, run: BoardRun) -> tuple[list[float], Check]:
    """Train in PyTorch and compare; return its losses too."""
    losses, expected = train_in_torch(data)
    check = compare(
        run.losses,
        to_torch_layout(compiled.graph, run.tensors),
        losses,
        expected=expected,
        start=data.weights,
        trained=list(data.job.trainable or expected),
    )
    return losses, check


def _add_run(result: BenchResult, one: CheckedScheme) -> None:
    """Record the time, memory and exactness of the board's run."""
    right, setup = not one.check.problems, replace(result.setup, dtype=one.dtype)
    if not right:
        result.failures[one.title] = "; ".join(one.check.problems)
    errors = f"losses {one.check.loss_error:.1e}, weights {one.check.weight_error:.1e}"
    result.note(f"{one.title}: {one.check.note}" if one.check.note else None)
    errors = "; ".join(filter(None, [errors, one.check.note]))
    figures = {
        "max_rel_error": (finite_or_large(one.check.largest), errors),
        "arena_bytes": (one.artifact.arena_bytes, None),
        "binary_bytes": (one.run.binary_bytes, None),
        "peak_rss_bytes": (one.run.peak_rss_bytes, None),
    }
    run = EngineRun(one.engine, __version__, one.name)
    result.add(
        *(
            setup.record(run, metric, value, ok=right, note=note)
            for metric, (value, note) in figures.items()
        ),
        setup.memory(run, one.live, ok=right),
    )
    sections = one.artifact.folder / "lib" / "memory.txt"  # of a device without files
    if sections.exists():
        result.note(f"{one.title}:\n{sections.read_text().rstrip()}")


def _time(
    options: BenchOptions, result: BenchResult, right: list[CheckedScheme], folder: Path
) -> None:
    """Time our step, PyTorch's and TensorFlow's on this machine."""
    with contextlib.closing(HostPeers(options.threads)) as peers:
        for one in right:
            with (
                result.failing(one.name),
                step(f"{one.name}: time ours beside PyTorch and TensorFlow"),
            ):
                job = folder / one.name / "job"
                with watching() as load:
                    found = list(peers.measure(one.artifact, one.data, one.losses, job))
                for measured in found:
                    result.add_measured((one.name, one.dtype), measured, load.mark)
        result.note(what_is_missing([], peers.missing))
        for engine, reason in peers.refused.items():
            result.note(f"Not compared with {engine}: {reason}.")


def _watching(board: Board, transport: Transport) -> contextlib.AbstractContextManager[Conditions]:
    """Watch governor, frequency and temperature if they are the board's own."""
    return watched(transport) if board.on_shelf else contextlib.nullcontext(Conditions())


def add_remote(result: BenchResult, one: CheckedScheme) -> None:
    """Record a board's own steady steps; the conditions of the run may make them invalid."""
    times = one.run.step_ms
    start = steady_from(times)
    problems = one.conditions.problems()
    if start is None:
        problems.append("its steps never became steady; do more: --steps")
    timing = Timing.of(times[start if start is not None else 1 :] or times)
    text = "; ".join([one.conditions.describe(), *problems])
    result.add(
        replace(result.setup, busy=one.conditions.busy, dtype=one.dtype).record(
            EngineRun(one.engine, __version__, one.name),
            "step_ms",
            timing.median,
            spread=(timing.min, timing.max, timing.n),
            samples=timing.values,
            ok=not problems,
            note=text,
        )
    )
    result.note("; ".join(filter(None, [f"{one.name}: {text}", one.conditions.busy])))
