"""The command that runs two artifacts alternately on a board."""

import tempfile
from functools import partial
from pathlib import Path

import click

from pockengine.backends.artifact import load_artifact
from pockengine.farm.bench.ab import take_turns
from pockengine.farm.boards.board import board_for, load_boards
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
    jobs = {}
    for name, folder in (("first", first), ("second", second)):
        artifact = load_artifact(from_user(str(folder)))
        inputs = {"weights": artifact.weights, "data": from_user(str(data))}
        jobs[name] = Job(artifact.executable, tuple(arguments), inputs)
    say = partial(click.echo, err=True)
    say(f"connecting to {board}")
    place = board_for(board, load_boards())
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
