"""`bazel run //farm:bench -- --device=rpi4`: fine-tune on a board, check every number, measure.

One table at the end, its records in the database; the exit status is 1 when any scheme failed, and
the message says which and why.
"""

import os
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from pockengine.devices import load_device
from pockengine.errors import PockEngineError
from pockengine.farm.bench_flow import Options, Outcome, run_bench
from pockengine.farm.board import Board, Local, board_for, load_boards
from pockengine.farm.results import Results, write_lines
from pockengine.farm.table import bench_table

SPARSE = "sparse"  # the scheme file that comes with the bench
SCHEMES = ("full", "bias-only", "last-2-blocks", SPARSE)
MODEL = "mobilenet_v2-0.35-96"


@click.command()
@click.option("--device", default="host", show_default=True, help="A device, or a board's name.")
@click.option("--model", default=MODEL, show_default=True)
@click.option(
    "--scheme", "schemes", multiple=True, help="A preset, sparse, or a TOML file; repeatable."
)
@click.option("--steps", default=10, show_default=True, type=click.IntRange(min=1))
@click.option("--batch", default=4, show_default=True, type=click.IntRange(min=1))
@click.option("--threads", type=click.IntRange(min=1), help="Default: all cores; emulated: 1.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Append records here.")
@click.option("--database", help="SQLAlchemy URL of the results; default: SQLite of this user.")
@click.option(
    "--reference",
    type=click.Choice(["tensorflow"]),
    help="On an emulated board, also measure aarch64 TensorFlow (minutes, once).",
)
@click.option("--list", "only_list", is_flag=True, help="List the boards and end.")
def main(
    device: str,
    model: str,
    schemes: tuple[str, ...],
    steps: int,
    batch: int,
    threads: int | None,
    json_file: Path | None,
    database: str | None,
    reference: str | None,
    only_list: bool,
) -> None:
    """Fine-tune a model on a board by several schemes, beside PyTorch and TensorFlow."""
    try:
        boards = load_boards()
        if only_list:
            _list(boards)
            return
        board = board_for(device, boards)
        options = Options(
            board=board,
            model=model,
            schemes=tuple(_scheme(scheme) for scheme in schemes or SCHEMES),
            steps=steps,
            batch=batch,
            threads=threads or _default_threads(board),
            measure_tensorflow=reference == "tensorflow",
        )
        with tempfile.TemporaryDirectory(prefix="pockengine-bench-") as folder:
            outcome = run_bench(options, Path(folder))
        _store(outcome, json_file, database)
    except PockEngineError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(_report(outcome))


def _scheme(text: str) -> str:
    """Return a preset's name as given, or a file's path, which is meant from where the user is."""
    if text == SPARSE:
        return str(Path(__file__).parent / f"{SPARSE}.toml")
    return str(_from_user(Path(text))) if text.endswith(".toml") else text


def _from_user(path: Path) -> Path:
    """Return a path as the user means it: Bazel runs programs in a folder of its own."""
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY", ".")).absolute() / path


def _default_threads(board: Board) -> int:
    """All cores on hardware; one on an emulator, where threads wait for each other for long."""
    return 1 if board.emulated else load_device(board.device).cpu.cores


def _store(outcome: Outcome, json_file: Path | None, database: str | None) -> None:
    if json_file is not None:
        write_lines(outcome.records, _from_user(json_file))
    results = Results(database)
    try:
        results.append(outcome.records)
    finally:
        results.close()


def _report(outcome: Outcome) -> int:
    """Print the table and what went wrong; return the exit status."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    if outcome.records:
        console.print(bench_table(outcome.records))
    for note in outcome.notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    for scheme, message in outcome.failures.items():
        click.echo(f"FAILED {scheme}: {message}", err=True)
    return 1 if outcome.failures else 0


def _list(boards: list[Board]) -> None:
    for board in boards:
        kind = "emulated" if board.emulated else type(board.place).__name__.lower()
        where = "this machine" if isinstance(board.place, Local) else kind
        click.echo(f"{board.name:20} {board.device:14} {where:12} {' '.join(board.tags)}")


if __name__ == "__main__":
    main()
