"""Kill trainings at random moments and resume them: the result must be that of an undisturbed one.

python -m pockengine.tests.backends.c.kill_trainings --count 300
"""

import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from safetensors.numpy import load_file, save_file

from pockengine.tests.backends.c.programs import build_sanitized, point_graph
from pockengine.tests.backends.c.runner import RATE, Runner, as_rows, initial
from pockengine.tests.backends.c.sealed import texts_of

STEPS, EVERY = 60, 4
OPTIMIZED = ("-O1",)


@dataclass(frozen=True)
class KilledTrainings:
    """Results of killed trainings.

    `lost` counts restarts from before the last checkpoint that was reported as saved, `different`
    trainings whose last checkpoint or loss differs from the undisturbed one.
    """

    kills: int
    trainings: int
    restarts: int
    lost: int
    different: int


@dataclass
class _Counts:
    kills: int = 0
    trainings: int = 0
    restarts: int = 0
    lost: int = 0
    different: int = 0


def command_of(runner: Runner, place: str, steps: int = STEPS) -> list[str]:
    """Return the command that a board would run at every start."""
    files = ["--weights", str(runner.weights), "--data", str(runner.data), "--save", place]
    numbers = ["--steps", str(steps), "--lr", str(RATE), "--save-every", str(EVERY), "--seed", "5"]
    schedule = ["--schedule", "cosine", "--warmup", "3", "--total", str(steps)]
    return [str(runner.path), "train", *files, *numbers, *schedule, "--resume"]


def kill_trainings(runner: Runner, folder: Path, count: int, seed: int) -> KilledTrainings:
    """Run the same command repeatedly, killed `count` times in total, and compare."""
    expected, _ = _run(command_of(runner, f"{folder}/whole/"), None)
    final = max((folder / "whole").iterdir()).read_bytes()
    rng, counts = np.random.default_rng(seed), _Counts()
    while counts.kills < count:
        place = folder / f"run-{counts.trainings}"
        counts.trainings += 1
        counts.different += not _train_killed(runner, place, rng, counts, expected)
        counts.different += max(place.iterdir()).read_bytes() != final
    return KilledTrainings(**vars(counts))


def _train_killed(
    runner: Runner,
    place: Path,
    rng: np.random.Generator,
    counts: _Counts,
    expected: dict[int, float],
) -> bool:
    """Train until a run is not killed; return whether every printed loss is the expected one."""
    printed: dict[int, float] = {}
    ended = False
    while not ended:
        before = newest(place)
        delay = float(rng.uniform(0, 0.15)) if rng.random() < 0.9 else None
        losses, ended = _run(command_of(runner, f"{place}/"), delay)
        counts.kills += not ended
        counts.restarts += 1
        counts.lost += newest(place) < before
        printed |= losses
    return printed == {step: loss for step, loss in expected.items() if step in printed}


def newest(place: Path) -> int:
    """Return the newest step whose file is complete; AssertionError if the newest file is torn."""
    paths = sorted(place.glob("step-*.safetensors")) if place.exists() else []
    if not paths:
        return 0
    load_file(paths[-1])
    return int(texts_of(paths[-1])["pockengine.steps"])


def _run(command: list[str], delay: float | None) -> tuple[dict[int, float], bool]:
    """Run a training, killed after this many seconds; return losses, and whether it completed."""
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        if delay is not None:
            time.sleep(delay)
            process.kill()
        out, err = process.communicate()
    if process.returncode not in (0, -9):
        raise AssertionError(f"status {process.returncode}: {err}")
    losses = {}
    for line in out.splitlines():
        if line.endswith("}"):
            values = json.loads(line)
            if "step" in values:
                losses[values["step"]] = values["loss"]
    return losses, process.returncode == 0


@click.command()
@click.option("--count", default=300, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(count: int, seed: int) -> None:
    """Kill trainings, and print how many were lost or differ."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path, program = build_sanitized(point_graph(), folder, OPTIMIZED)
        weights, data = folder / "weights.safetensors", folder / "data.safetensors"
        save_file({**initial(program), **program.constants}, weights)
        batches = np.random.default_rng(0).standard_normal((7, 300)).astype(np.float32)
        save_file(as_rows({"x": batches}), data)
        click.echo(kill_trainings(Runner(path, program, weights, data), folder, count, seed))


if __name__ == "__main__":
    main()
