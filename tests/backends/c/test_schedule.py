"""Learning-rate schedules: the runner's rates are those of Python."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from pockengine.backends.rate_schedule import KINDS, RateSchedule
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("warmup", [0, 3])
def test_runner_and_python_agree(runner: Runner, kind: str, warmup: int) -> None:
    schedule = RateSchedule(kind, RATE, steps=9, warmup=warmup)
    whole = lines(runner.train(9, "--schedule", kind, "--warmup", warmup))
    rates = [line["lr"] for line in whole if "lr" in line]
    assert rates == pytest.approx([schedule(step) for step in range(1, 10)], rel=1e-6)
    told = ("--schedule", kind, "--warmup", warmup, "--first-step", 5, "--total", 9)
    resumed = [line["lr"] for line in lines(runner.train(5, *told)) if "lr" in line]
    assert resumed == rates[4:]


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
