"""The command that runs two artifacts alternately on a board."""

import tempfile
from functools import partial
from pathlib import Path

import click

from pockengine.backends.artifact import Artifact, load_artifact
from pockengine.devices import known_devices, load_device
from pockengine.errors import FarmError
from pockengine.farm.bench.ab import take_turns
from pockengine.farm.boards.board import Board, board_for, load_boards
from pockengine.farm.cli.base import CONSOLE, from_user, plain_errors
from pockengine.farm.jobs.checkout import checkout
from pockengine.farm.jobs.job import Job


@click.command()
@click.argument("board")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Rows to train on.")
@click.option("--steps", default=20, show_default=True, type=click.IntRange(4))
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1))
@plain_errors
def ab(
    board: str, first: Path, second: Path, data: Path, steps: int, rounds: int, threads: int
) -> None:
    """Train the artifacts FIRST and SECOND in turns on a board, and compare their times."""
    arguments = ["train", "--weights", "weights", "--data", "data", "--lr", "0.01"]
    arguments += ["--steps", str(steps), "--threads", str(threads)]
    place, rows = board_for(board, load_boards()), _data_file(data)
    jobs = {}
    for name, folder in (("first", first), ("second", second)):
        artifact = load_artifact(from_user(folder))
        _check_device(artifact, place)
        inputs = {"weights": artifact.weights, "data": rows}
        jobs[name] = Job(artifact.executable, tuple(arguments), inputs)
    say = partial(click.echo, err=True)
    say(f"connecting to {board}")
    with (
        checkout(place) as transport,
        tempfile.TemporaryDirectory(prefix="pockengine-ab-") as folder_,
    ):
        turns = take_turns(transport, jobs, rounds, Path(folder_), say=say)
    for name, medians in turns.medians.items():
        steps_ms = ", ".join(f"{value:.3f}" for value in medians)
        CONSOLE.print(f"{name}: {steps_ms} ms a step")
    CONSOLE.print(f"second over first: {turns.ratio('first', 'second')}")
    if place.emulated:
        CONSOLE.print(f"{board} is emulated: these are times of the emulator, not of a board")
    conditions, problems = turns.conditions, turns.conditions.problems()
    CONSOLE.print("; ".join(filter(None, [conditions.describe(), conditions.busy, *problems])))
    raise SystemExit(1 if problems else 0)


def _data_file(data: Path) -> Path:
    """Return the file of rows; FarmError unless it is one file, as a job sends it."""
    path = from_user(data)
    if path.is_file():
        return path
    fact = "it is a folder" if path.is_dir() else "there is no such file"
    raise FarmError(f"--data {data}: {fact}; give one file, .npz or .safetensors")


def _check_device(artifact: Artifact, board: Board) -> None:
    """Raise FarmError for an artifact that was built for another kind of processor."""
    device = artifact.device
    if device not in known_devices():
        return  # described by a file; the board says whether it runs
    built, needed = (load_device(name).toolchain.target for name in (device, board.device))
    if built != needed:
        raise FarmError(
            f"{artifact.folder} is for {device}, and {board.name} is of the device {board.device}; "
            f"compile with --device {board.device}"
        )
