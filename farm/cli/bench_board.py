"""The bench on one board: a suite or a run, its table, records and gate."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from pockengine.backends.tuned import read_table
from pockengine.devices import load_device
from pockengine.errors import FarmError
from pockengine.farm.bench.flow import run_bench
from pockengine.farm.bench.graphics import MODELS as GPU_MODELS
from pockengine.farm.bench.graphics import SCHEMES as GPU_SCHEMES
from pockengine.farm.bench.graphics import gpu_backend
from pockengine.farm.bench.paper.cells import PaperChoice
from pockengine.farm.bench.result import BenchOptions, BenchResult, Keep
from pockengine.farm.bench.runtimes import BACKENDS
from pockengine.farm.bench.runtimes import SCHEMES as RUNTIMES_SCHEMES
from pockengine.farm.bench.schemes import (
    GENERATION,
    GPU,
    LLM,
    MODEL,
    PAPER,
    PEERS,
    RUNTIMES,
    SCHEMES,
    listed_model,
)
from pockengine.farm.bench.suite import FULL
from pockengine.farm.bench.table import bench_table, meaning_of
from pockengine.farm.boards.board import Board, Local
from pockengine.farm.cli.base import from_user
from pockengine.farm.cli.bench_generation import generation_suite
from pockengine.farm.cli.bench_llm import llm_suite
from pockengine.farm.cli.bench_paper import PaperOptions, run_paper
from pockengine.farm.cli.bench_runtimes import interpreters, runtimes_suite
from pockengine.farm.cli.bench_stores import check_measured, store
from pockengine.farm.cli.bench_suite import run_peers
from pockengine.farm.cli.suites import Choice, Suite, run_suite
from pockengine.farm.references.guest import FRAMEWORKS
from pockengine.farm.results.gate import against, report
from pockengine.farm.results.results import Record, Results, read_lines
from pockengine.terminal import PlainConsole

BATCH = 4
SUITES: Mapping[str, Callable[[Choice], Suite[Any, Any]]] = {
    LLM: llm_suite,
    GENERATION: generation_suite,
    RUNTIMES: runtimes_suite,
}
"""Suites of this machine, besides that of peers, which needs the machine's peaks."""


def bench_on(
    board: Board, options: Mapping[str, Any], json_file: Path | None, database: str | None
) -> int:
    """Bench one board; return the exit status."""
    suite = options["suite"]
    if suite == PAPER:
        return _run_paper(options, board, json_file, database)
    by_gpu = options["backend"] or suite == GPU
    threads = options["threads"] or (1 if by_gpu else _default_threads(board))
    if suite in (LLM, GENERATION) or (suite in (PEERS, RUNTIMES) and not board.emulated):
        return _run_suite(options, board, threads, json_file=json_file, database=database)
    check_measured(options["baseline"], board.device, _models(options), database)

    def keep(records: Sequence[Record]) -> None:
        store(records, json_file, database)

    status, records = 0, []
    for run in _gpu_runs(options, board) if suite == GPU else [options]:
        result = _run_bench(run, board, threads, keep)
        status |= _report(result)
        records += result.records
    return status | _gate(records, options, database)


def _run_paper(
    options: Mapping[str, Any], board: Board, json_file: Path | None, database: str | None
) -> int:
    """Measure the paper's cells; records are kept as they come."""
    stored = from_user(json_file) if json_file is not None else None
    paper = PaperOptions(
        choice=PaperChoice(
            board=board,
            models=options["models"],
            batches=options["batches"],
            schemes=options["schemes"],
            engines=options["engines"],
            quick=options["quick"],
        ),
        threads=options["threads"] or _default_threads(board),
        records=read_lines(stored) if stored is not None and options["resume"] else (),
        report=None if options["report"] is None else from_user(options["report"]),
        joined=tuple(
            record for file in options["joined"] for record in read_lines(from_user(file))
        ),
    )
    return run_paper(paper, lambda records: store(records, json_file, database))


def _models(options: Mapping[str, Any]) -> list[str]:
    """Return the models of a run on a board, as records name them."""
    every = GPU_MODELS if options["suite"] == GPU else (MODEL,)
    return [str(listed_model(model)) for model in options["models"] or every]


def _gpu_runs(options: Mapping[str, Any], board: Board) -> list[dict[str, Any]]:
    """Return the options of each run by a board's GPU: one for each model."""
    schemes = options["schemes"] or GPU_SCHEMES
    common = {**options, "suite": None, "backend": gpu_backend(board), "schemes": schemes}
    return [{**common, "models": (model,)} for model in options["models"] or GPU_MODELS]


def _gate(records: Sequence[Record], options: Mapping[str, Any], database: str | None) -> int:
    """Compare with the baseline that the user named; return 1 when something got worse."""
    baseline, out = options["baseline"], options["out"]
    if baseline is None or not records:
        return 0
    results = Results(database)
    comparisons = against(records, baseline, results)
    results.close()
    folder = None if out is None else from_user(out) / records[0].device
    return report(comparisons, baseline, folder, _console())


def _run_bench(options: Mapping[str, Any], board: Board, threads: int, keep: Keep) -> BenchResult:
    """Train one model and batch on a board, and measure it.

    A suite on an emulated board is this, with every framework beside the full scheme; that of
    runtimes counts our step in each of them too.
    """
    suite, runtimes = options["suite"] is not None, options["suite"] == RUNTIMES
    for name in ("models", "batches"):
        if len(options[name]) > 1:
            raise FarmError(f"several {name} are for a suite on this machine")
    chosen = BenchOptions(
        board=board,
        model=next(iter(options["models"]), MODEL),
        schemes=options["schemes"] or (RUNTIMES_SCHEMES if runtimes else SCHEMES),
        steps=options["steps"],
        batch=next(iter(options["batches"]), BATCH),
        threads=threads,
        references=tuple(FRAMEWORKS) if suite else options["references"],
        reference_schemes=(FULL,) if suite else None,
        runtimes=BACKENDS if runtimes else (),
        pythons=interpreters(options["pythons"]),
        int8=options["int8"],
        backend=options["backend"],
        by_default=not options["schemes"],
    )
    with tempfile.TemporaryDirectory(prefix="pockengine-bench-") as folder:
        return run_bench(chosen, Path(folder), keep)


def _run_suite(
    options: Mapping[str, Any],
    board: Board,
    threads: int,
    json_file: Path | None,
    database: str | None,
) -> int:
    """Measure a suite on this machine; records are kept as they come."""
    suite = options["suite"]
    if not isinstance(board.place, Local):
        also = "" if suite in (LLM, GENERATION) else " and on emulated boards"
        raise FarmError(f"--suite={suite} runs on this machine{also}, not on {board.name}")

    def keep(records: Sequence[Record]) -> None:
        store(records, json_file, database)

    choice = _choice(options, board, threads, json_file)
    if suite == PEERS:
        return run_peers(choice, keep)
    return run_suite(SUITES[suite](choice), keep)


def _choice(
    options: Mapping[str, Any], board: Board, threads: int, json_file: Path | None
) -> Choice:
    """Return what a suite measures; CompileError for tuned plans of another device."""
    chosen: dict[str, Any] = {field.name: options.get(field.name) for field in fields(Choice)}
    report, tuned = (
        None if options[name] is None else from_user(options[name]) for name in ("report", "tuned")
    )
    if tuned is not None:
        read_table(tuned, load_device(board.device))
    measured = options["resume"] and json_file
    chosen |= {
        "threads": threads,
        "report": report,
        "tuned": tuned,
        "done": _done(from_user(measured), threads) if measured else frozenset(),
        "pythons": interpreters(options["pythons"]),
    }
    return Choice(**chosen)


def _done(path: Path, threads: int) -> frozenset[tuple[str, int]]:
    """Return the models and batches that this suite has measured with these threads.

    Only its own records of this machine have a roofline.
    """
    return frozenset(
        (x.model, x.batch)
        for x in read_lines(path)
        if (x.metric, x.device, x.threads) == ("roofline_ms", "host", threads)
    )


def _default_threads(board: Board) -> int:
    """All cores on hardware; one on an emulator, where threads wait for each other for long."""
    return 1 if board.emulated else load_device(board.device).cpu.cores


def _report(result: BenchResult) -> int:
    """Print the table and the errors; return the exit status."""
    console = _console()
    if result.records:
        console.print(bench_table(result.records))
        if meaning := meaning_of(result.records):
            console.print(meaning)
    for note in result.notes:
        console.print(note, soft_wrap=True)
    for scheme, message in result.failures.items():
        click.echo(f"FAILED {scheme}: {message}", err=True)
    return 1 if result.failures else 0


def _console() -> PlainConsole:
    return PlainConsole(100)
