"""`bazel run //farm:bench -- --device=rpi4`: fine-tune on a board, check every number, measure.

One table at the end, its records in the database; the exit status is 1 when any scheme failed, and
the message says which and why. Options are checked here, before compilers, databases and frameworks
are imported.
"""

import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pockengine.devices import known_devices
from pockengine.devices.schema import GPU_ARCHITECTURES
from pockengine.errors import PockEngineError
from pockengine.extras import need
from pockengine.farm.bench.schemes import (
    GENERATION,
    LLM,
    MODEL,
    NAMES,
    SUITES,
    check_schemes,
    listed_model,
)
from pockengine.farm.boards.board import Board, Local, board_for, load_boards
from pockengine.farm.cli.base import from_user, plain_errors
from pockengine.farm.cli.bench_options import check_options
from pockengine.farm.references.engines import STORAGES
from pockengine.farm.references.guest import FRAMEWORKS
from pockengine.signals import ending_on_signals

HOST = "host"
EPILOG = "\n\n".join(
    "\b\n" + textwrap.fill(f"{kind}: {names}", 76, break_on_hyphens=False)
    for kind, names in NAMES.items()
)


@click.command(epilog=EPILOG)
@click.option("--device", default=HOST, show_default=True, help="A device, a board, or all.")
@click.option(
    "--model", "models", multiple=True, help=f"Listed below. Default: {MODEL}; suites: several."
)
@click.option(
    "--scheme", "schemes", multiple=True, help="A preset, sparse, or a TOML file; repeatable."
)
@click.option("--steps", default=10, show_default=True, type=click.IntRange(min=1))
@click.option("--batch", "batches", multiple=True, type=click.IntRange(min=1), help="Default: 4.")
@click.option("--threads", type=click.IntRange(1, 4096), help="Default: all cores; emulated: 1.")
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
    type=click.Choice(SUITES),
    help="All installed frameworks; the backends C, ONNX Runtime, TFLite, TVM; decoders; a GPU; "
    "the paper's tables.",
)
@click.option(
    "--tokens",
    "lengths",
    multiple=True,
    type=click.IntRange(min=2),
    help="Suite llm: tokens per row, default 256 and 512; generation: of the prompt, default 128 "
    "and 512; repeatable.",
)
@click.option(
    "--frozen-weights",
    "storages",
    multiple=True,
    type=click.Choice(STORAGES),
    help="Suite generation: the type of all weights, default f32; repeatable.",
)
@click.option("--engine", "engines", multiple=True, help="Suites: only this engine; repeatable.")
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="ENGINE=INTERPRETER",
    help="Suite runtimes: an engine's own Python, as pockengine-tvm=tvm/bin/python; repeatable.",
)
@click.option("--quick", is_flag=True, help="Suites: a shorter run; suite paper: small models.")
@click.option("--resume", is_flag=True, help="Suites: skip measurements that --json already has.")
@click.option("--bf16", is_flag=True, help="Suites: also run PockEngine in bf16.")
@click.option("--tuned", type=click.Path(path_type=Path), help="Suites: a file written by tune.")
@click.option("--int8", is_flag=True, help="On a board: train in int8, and in f32 if it has files.")
@click.option("--backend", type=click.Choice(list(GPU_ARCHITECTURES)), help="Train on a GPU.")
@click.option("--report", type=click.Path(path_type=Path), help="Suites: folder of an HTML page.")
@click.option(
    "--records",
    "joined",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Suite paper: also tables from this file: memory, STM32F746, DSP, accuracy, LLaMA2-7B; "
    "repeatable.",
)
@click.option("--baseline", help="Compare with the stored records of this revision: main.")
@click.option("--out", type=click.Path(path_type=Path), help="With --baseline: JUnit, Markdown.")
@click.option("--list", "only_list", is_flag=True, help="List the boards, and exit.")
@plain_errors
def main(only_list: bool, database: str | None, json_file: Path | None, **options: Any) -> None:
    """Fine-tune a model on a board with several schemes; compare with PyTorch and TensorFlow."""
    parameters = {**options, "database": database, "json_file": json_file}
    if options["report"] is not None:
        need("bench --report", "report")
    boards = load_boards()
    if only_list:
        _list(boards)
        return
    options["schemes"] = tuple(map(_scheme, options["schemes"]))
    everywhere = options["device"] == "all"
    chosen = boards if everywhere else [board_for(options["device"], boards)]
    check_options(_named(parameters), options["suite"], chosen)
    _check(options)
    _check_stores(options, json_file, database)
    if everywhere:
        status = _on_all(boards, lambda board: _on(board, options, json_file, database))
    else:
        status = _on(chosen[0], options, json_file, database)
    sys.exit(status)


def _named(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the user named."""
    source = click.get_current_context().get_parameter_source
    return {name: x for name, x in options.items() if source(name) is not ParameterSource.DEFAULT}


def _check(options: Mapping[str, Any]) -> None:
    """Refuse names of no model, scheme or engine before anything heavy is imported or read."""
    if options["suite"] == LLM:
        from pockengine.farm.cli.bench_llm import check_llm

        check_llm(options["models"], options["schemes"], options["engines"])
        return
    if options["suite"] == GENERATION:
        from pockengine.farm.cli.bench_llm import check_models

        check_models(options["models"])
        return
    for model in options["models"]:
        listed_model(model)
    check_schemes(options["schemes"])


def _check_stores(options: Mapping[str, Any], json_file: Path | None, database: str | None) -> None:
    from pockengine.farm.cli.bench_stores import check_stores

    check_stores(options, json_file, database)


def _on_all(boards: Sequence[Board], bench: Callable[[Board], int]) -> int:
    """Bench the default board of each device; report those without, and continue."""
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
    from pockengine.farm.cli.bench_board import bench_on

    return bench_on(board, options, json_file, database)


def _scheme(text: str) -> str:
    """Return a preset's name unchanged, or a file's path relative to the user's folder."""
    return str(from_user(text)) if text.endswith(".toml") else text


def _list(boards: list[Board]) -> None:
    for board in boards:
        kind = "emulated" if board.emulated else type(board.place).__name__.lower()
        where = "this machine" if isinstance(board.place, Local) else kind
        click.echo(f"{board.name:20} {board.device:14} {where:12} {' '.join(board.tags)}")


if __name__ == "__main__":
    with ending_on_signals():
        main()
