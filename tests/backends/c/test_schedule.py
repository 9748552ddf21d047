"""Learning-rate schedules: the runner's rates equal Python's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pockengine.backends.rate_schedule import KINDS, PLAIN, RateSchedule
from pockengine.errors import RuntimeFailure
from pockengine.tests.backends.c.programs import build_sanitized, point_graph
from pockengine.tests.backends.c.runner import RATE, Runner, initial, lines


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    folder = tmp_path_factory.mktemp("schedule")
    path, program = build_sanitized(point_graph(), folder)
    weights, data = folder / "weights.safetensors", folder / "data.safetensors"
    save_file({**initial(program), **program.constants}, weights)
    save_file({"x": np.zeros(300, np.float32)}, data)
    return Runner(path, program, weights, data)


NUMBERS: dict[str, dict[str, Any]] = {
    **{kind: {} for kind in PLAIN},
    "polynomial": {"factor": 1.5},
    "exponential": {"factor": 0.7},
    "step": {"factor": 0.3, "period": 2},
    "multistep": {"factor": 0.3, "milestones": (2, 5, 6)},
    "restarts": {"factor": 2.0, "period": 2},
    "cyclic": {"factor": 0.2, "period": 2},
    "one-cycle": {"factor": 0.4},
}


def options(numbers: dict[str, Any]) -> list[str]:
    """The runner's options for a schedule with these numbers."""
    return [
        part
        for name, number in numbers.items()
        for part in (f"--{name}", ",".join(map(str, number)) if name == "milestones" else number)
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("warmup", [0, 3])
def test_runner_and_python_agree(runner: Runner, kind: str, warmup: int, tmp_path: Path) -> None:
    schedule = RateSchedule(kind, RATE, steps=9, warmup=warmup, **NUMBERS[kind])
    arguments = ["--schedule", kind, "--warmup", warmup, *options(NUMBERS[kind])]
    whole = lines(runner.train(9, *arguments))
    rates = [line["lr"] for line in whole if "lr" in line]
    assert rates == pytest.approx([schedule(step) for step in range(1, 10)], rel=1e-6)
    later = lines(runner.train(5, *arguments, "--first-step", 5, "--total", 9))
    assert [line["lr"] for line in later if "lr" in line] == rates[4:]
    saved = ("--save", tmp_path / "saved")
    runner.train(4, *arguments, "--total", 9, *saved)
    resumed = lines(runner.train(9, "--resume", *saved))  # the checkpoint has the schedule
    assert [line["lr"] for line in resumed if "lr" in line] == rates[4:]


@pytest.mark.parametrize("named", [(), ("--schedule", "cosine")], ids=str)
def test_a_resumed_training_follows_a_later_end(
    runner: Runner, named: tuple[str, ...], tmp_path: Path
) -> None:
    saved = ("--save", tmp_path / "saved")
    runner.train(4, "--schedule", "cosine", *saved)

    resumed = lines(runner.train(8, "--resume", *named, *saved))
    again = lines(runner.train(12, "--resume", "--total", "20", *saved))

    for found, first, total in ((resumed, 5, 8), (again, 9, 20)):
        rates = [line["lr"] for line in found if "lr" in line]
        schedule = RateSchedule("cosine", RATE, total)
        assert rates == pytest.approx([schedule(first + n) for n in range(4)], rel=1e-6)


def test_restarts_of_one_length() -> None:
    schedule = RateSchedule("restarts", 1.0, 7, factor=1, period=3)
    rates = [schedule(step) for step in range(1, 8)]
    assert rates == pytest.approx([1, 0.75, 0.25, 1, 0.75, 0.25, 1])


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (["step", "--period", "2"], "needs a factor above 0"),
        (["step", "--factor", "0.1"], "needs a period"),
        (["multistep", "--factor", "0.1"], "needs milestones"),
        (["multistep", "--factor", "0.1", "--milestones", "3,2"], "rising updates, such as 30,60"),
        (["multistep", "--factor", "0.1", "--milestones", "1,"], "rising updates, such as 30,60"),
        (["restarts", "--factor", "1.5", "--period", "2"], "a whole factor of at least 1"),
        (["one-cycle", "--factor", "1.5"], "needs a factor below 1"),
    ],
)
def test_runner_says_which_number_is_missing(runner: Runner, told: list[str], words: str) -> None:
    done = runner.train(1, "--schedule", *told)
    assert done.returncode == 2
    assert words in done.stderr
    assert "--milestones" in done.stderr, "it names the options"


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"kind": "exponential"}, "needs a factor above 0"),
        ({"kind": "step", "factor": 0.1}, "needs a period"),
        ({"kind": "multistep", "factor": 0.1, "milestones": (3, 2)}, "needs rising milestones"),
        ({"kind": "restarts", "factor": 1.5, "period": 2}, "a whole factor"),
        ({"kind": "cyclic", "factor": 1.0, "period": 2}, "a factor below 1"),
    ],
)
def test_python_says_which_number_is_missing(numbers: dict[str, Any], words: str) -> None:
    with pytest.raises(RuntimeFailure, match=words):
        RateSchedule(rate=0.1, steps=9, **numbers)


def test_shapes_of_the_schedules() -> None:
    assert [RateSchedule("constant", 1.0, 4, 2)(s) for s in range(1, 6)] == [0.5, 1, 1, 1, 1]
    assert [RateSchedule("linear", 1.0, 4)(s) for s in range(1, 6)] == [1, 0.75, 0.5, 0.25, 0.25]
    cosine = [RateSchedule("cosine", 2.0, 4)(s) for s in range(1, 5)]
    expected = [1 + np.cos(np.pi * p) for p in (0, 0.25, 0.5, 0.75)]
    assert cosine == pytest.approx(expected)


def test_unknown_schedules_are_refused(runner: Runner) -> None:
    done = runner.train(1, "--schedule", "steps")
    assert done.returncode == 2
    assert "--schedule" in done.stderr
    with pytest.raises(RuntimeFailure, match="known: constant, linear, cosine"):
        RateSchedule("steps", 0.1, 5)
    with pytest.raises(RuntimeFailure, match="warmup"):
        RateSchedule("cosine", 0.1, 5, warmup=5)
