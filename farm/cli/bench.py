"""`bazel run //farm:bench -- --device=rpi4`: fine-tune on a board, check every number, measure.

One table at the end, its records in the database; the exit status is 1 when any scheme failed, and
the message says which and why.
"""

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from pockengine.devices import known_devices, load_device
from pockengine.errors import FarmError, PockEngineError
from pockengine.extras import need
from pockengine.farm.bench.flow import run_bench
from pockengine.farm.bench.graphics import CUDA, OPENCL, gpu_backend
from pockengine.farm.bench.graphics import MODELS as GPU_MODELS
from pockengine.farm.bench.graphics import SCHEMES as GPU_SCHEMES
from pockengine.farm.bench.result import BenchOptions, BenchResult, Keep
from pockengine.farm.bench.runtimes import BACKENDS
from pockengine.farm.bench.runtimes import SCHEMES as RUNTIMES_SCHEMES
from pockengine.farm.bench.schemes import SPARSE, check_schemes, listed_model
from pockengine.farm.bench.suite import FULL
from pockengine.farm.bench.table import bench_table
from pockengine.farm.boards.board import Board, Local, board_for, load_boards
from pockengine.farm.cli.base import from_user
from pockengine.farm.cli.bench_llm import LlmOptions, run_llm
from pockengine.farm.cli.bench_runtimes import RuntimesOptions, interpreters, run_runtimes
from pockengine.farm.cli.bench_suite import SuiteOptions, run_peers
from pockengine.farm.references.guest import FRAMEWORKS
from pockengine.farm.results.gate import against, report
from pockengine.farm.results.results import Record, Results, write_lines
from pockengine.terminal import PlainConsole

SCHEMES = ("full", "bias-only", "last-2-blocks", SPARSE)
MODEL, BATCH = "mobilenet_v2-0.35-96", 4
HOST = "host"
PEERS, RUNTIMES, LLM, GPU = "peers", "runtimes", "llm", "gpu"


@click.command()
@click.option("--device", default=HOST, show_default=True, help="A device, a board, or all.")
@click.option(
    "--model", "models", multiple=True, help=f"Default: {MODEL}; of a suite: all its own."
)
@click.option(
    "--scheme", "schemes", multiple=True, help="A preset, sparse, or a TOML file; repeatable."
)
@click.option("--steps", default=10, show_default=True, type=click.IntRange(min=1))
@click.option("--batch", "batches", multiple=True, type=click.IntRange(min=1), help="Default: 4.")
@click.option("--threads", type=click.IntRange(min=1), help="Default: all cores; emulated: 1.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Append records here.")
@click.option("--database", help="SQLAlchemy URL of the results; default: SQLite of this user.")
@click.option(
    "--reference",
    "references",
    multiple=True,
    type=click.Choice(list(FRAMEWORKS)),
    help="On an emulated board, also measure this framework's aarch64 build (minutes, once).",
)
@click.option(
    "--suite",
    type=click.Choice([PEERS, RUNTIMES, LLM, GPU]),
    help="Ours beside all that is installed; in C, ONNX Runtime, TFLite and TVM; decoders; a GPU.",
)
@click.option(
    "--tokens",
    "lengths",
    multiple=True,
    type=click.IntRange(min=2),
    help="Of llm: tokens of a row; repeatable. Default: 256 and 512.",
)
@click.option(
    "--engine", "engines", multiple=True, help="Of a suite: only these peers; repeatable."
)
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="ENGINE=INTERPRETER",
    help="Of runtimes: an engine's own Python, as pockengine-tvm=tvm/bin/python; repeatable.",
)
@click.option("--quick", is_flag=True, help="Of a suite: three rounds, no torch.compile.")
@click.option("--resume", is_flag=True, help="Of a suite: leave out what --json holds already.")
@click.option("--bf16", is_flag=True, help="Of a suite: ours in bf16 too, where the CPU can.")
@click.option("--tuned", type=click.Path(path_type=Path), help="Of a suite: a file of tune.")
@click.option("--int8", is_flag=True, help="On a board: train in int8; with files, beside f32.")
@click.option("--backend", type=click.Choice([CUDA, OPENCL]), help="Train by a GPU.")
@click.option("--report", type=click.Path(path_type=Path), help="Of a suite: a folder for HTML.")
@click.option("--baseline", help="Compare with what is stored of this revision: main.")
@click.option("--out", type=click.Path(path_type=Path), help="With --baseline: JUnit, Markdown.")
@click.option("--list", "only_list", is_flag=True, help="List the boards and end.")
def main(only_list: bool, database: str | None, json_file: Path | None, **options: Any) -> None:
    """Fine-tune a model on a board by several schemes, beside PyTorch and TensorFlow."""
    try:
        if options["report"] is not None:
            need("bench --report", "report")
        boards = load_boards()
        if only_list:
            _list(boards)
            return
        options["schemes"] = tuple(map(_scheme, options["schemes"]))
        _check(options)
        if options["device"] == "all":
            status = _on_all(boards, lambda board: _on(board, options, json_file, database))
        else:
            status = _on(board_for(options["device"], boards), options, json_file, database)
    except PockEngineError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(status)


def _check(options: Mapping[str, Any]) -> None:
    """Refuse models and schemes that are none before anything is read; decoders have their own."""
    if options["suite"] == LLM:
        return
    for model in options["models"]:
        listed_model(model)
    check_schemes(options["schemes"])


def _on_all(boards: Sequence[Board], bench: Callable[[Board], int]) -> int:
    """Bench the default board of each device; say which cannot be, and go on with the others."""
    status = 0
    with_boards = dict.fromkeys(board.device for board in boards)
    for device in with_boards:
        board = board_for(device, boards)
        if isinstance(board.place, Local) and device != HOST:
            click.echo(f"{device}: not measured: it is this machine too; name it to measure it")
            continue
        try:
            status |= bench(board)
        except PockEngineError as error:
            click.echo(f"FAILED {board.name}: {error}", err=True)
            status = 1
    for device in known_devices():
        if device not in with_boards:
            click.echo(f"{device}: not measured: the inventory has no board of it")
    return status


def _on(
    board: Board, options: Mapping[str, Any], json_file: Path | None, database: str | None
) -> int:
    """Bench one board; return the exit status."""
    suite = options["suite"]
    by_gpu = options["backend"] or suite == GPU
    threads = options["threads"] or (1 if by_gpu else _default_threads(board))
    if suite == LLM or (suite in (PEERS, RUNTIMES) and not board.emulated):
        return _run_suite(options, board, threads, json_file, database)

    def keep(records: Sequence[Record]) -> None:
        _store(records, json_file, database)

    status, records = 0, []
    for run in _gpu_runs(options, board) if suite == GPU else [options]:
        result = _run_bench(run, board, threads, keep)
        status |= _report(result)
        records += result.records
    return status | _gate(records, options, database)


def _gpu_runs(options: Mapping[str, Any], board: Board) -> list[dict[str, Any]]:
    """Return the options of each run by a board's GPU: one for each model."""
    schemes = options["schemes"] or GPU_SCHEMES
    given = {**options, "suite": None, "backend": gpu_backend(board), "schemes": schemes}
    return [{**given, "models": (model,)} for model in options["models"] or GPU_MODELS]


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
        also = "" if suite == LLM else " and on emulated boards"
        raise FarmError(f"--suite={suite} runs on this machine{also}, not on {board.name}")

    def keep(records: Sequence[Record]) -> None:
        _store(records, json_file, database)

    if suite == LLM:
        return run_llm(_llm_options(options, threads), keep)
    if suite == RUNTIMES:
        return run_runtimes(_runtimes_options(options, threads), keep)
    if options["resume"] and json_file is None:
        raise FarmError("--resume needs --json, whose records say what is done")
    report = options["report"]
    suite_options = SuiteOptions(
        models=options["models"],
        batches=options["batches"],
        engines=options["engines"],
        schemes=options["schemes"],
        threads=threads,
        quick=options["quick"],
        report=None if report is None else from_user(report),
        bf16=options["bf16"],
        tuned=None if options["tuned"] is None else from_user(options["tuned"]),
        done=_done(from_user(json_file)) if options["resume"] and json_file else frozenset(),
    )
    return run_peers(suite_options, keep)


def _runtimes_options(options: Mapping[str, Any], threads: int) -> RuntimesOptions:
    return RuntimesOptions(
        models=options["models"],
        batches=options["batches"],
        engines=options["engines"],
        schemes=options["schemes"],
        threads=threads,
        quick=options["quick"],
        pythons=interpreters(options["pythons"]),
    )


def _llm_options(options: Mapping[str, Any], threads: int) -> LlmOptions:
    return LlmOptions(
        models=options["models"],
        lengths=options["lengths"],
        batches=options["batches"],
        engines=options["engines"],
        schemes=options["schemes"],
        threads=threads,
        steps=options["steps"],
        quick=options["quick"],
    )


def _done(path: Path) -> frozenset[tuple[str, int]]:
    """Return the models and batches that a file has our step times of."""
    if not path.exists():
        return frozenset()
    records = [Record.from_json(line) for line in path.read_text().splitlines()]
    return frozenset((x.model, x.batch) for x in records if x.metric == "step_ms")


def _scheme(text: str) -> str:
    """Return a preset's name as given, or a file's path, which is meant from where the user is."""
    return str(from_user(text)) if text.endswith(".toml") else text


def _default_threads(board: Board) -> int:
    """All cores on hardware; one on an emulator, where threads wait for each other for long."""
    return 1 if board.emulated else load_device(board.device).cpu.cores


def _store(records: Sequence[Record], json_file: Path | None, database: str | None) -> None:
    if json_file is not None:
        write_lines(records, from_user(json_file))
    results = Results(database)
    try:
        results.append(records)
    finally:
        results.close()


def _report(result: BenchResult) -> int:
    """Print the table and what went wrong; return the exit status."""
    console = _console()
    if result.records:
        console.print(bench_table(result.records))
    for note in result.notes:
        console.print(note, soft_wrap=True)
    for scheme, message in result.failures.items():
        click.echo(f"FAILED {scheme}: {message}", err=True)
    return 1 if result.failures else 0


def _console() -> PlainConsole:
    return PlainConsole(140)


def _list(boards: list[Board]) -> None:
    for board in boards:
        kind = "emulated" if board.emulated else type(board.place).__name__.lower()
        where = "this machine" if isinstance(board.place, Local) else kind
        click.echo(f"{board.name:20} {board.device:14} {where:12} {' '.join(board.tags)}")


if __name__ == "__main__":
    main()
