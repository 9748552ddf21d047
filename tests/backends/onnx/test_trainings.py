"""Trainings in ONNX Runtime: losses, weights and states equal C's, for every scheme."""

from pathlib import Path

import numpy as np
import pytest

import pockengine
from pockengine.backends.rate_schedule import RateSchedule
from pockengine.backends.session import Course
from pockengine.compiler.ir import Graph
from pockengine.compiler.optim import Sgd
from pockengine.errors import RuntimeFailure
from pockengine.tests.backends.inputs import draw
from pockengine.tests.backends.training_checks import check_moving, check_training
from pockengine.tests.backends.trainings import TRAININGS
from pockengine.tests.compiler.small_nets import residual_net


@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_is_that_of_c(name: str) -> None:
    check_training("onnx", name)


def test_a_training_moves_between_backends(tmp_path: Path) -> None:
    check_moving(("c", "onnx", "c"), Sgd(momentum=0.9), tmp_path)


@pytest.mark.parametrize(
    "schedule",
    [
        RateSchedule("constant", 0.1, 50),
        RateSchedule("cosine", 0.3, 100, warmup=7),
        RateSchedule("multistep", 0.1, 90, factor=0.3, milestones=(20, 50)),
    ],
)
def test_the_course_of_a_training_moves_with_it(schedule: RateSchedule, tmp_path: Path) -> None:
    """C reads and rewrites the file that a session in Python wrote."""
    course = Course(schedule, 640, True, 32, True, 4)
    compiled = [pockengine.compile(residual_net(), None, backend=name) for name in ("onnx", "c")]
    with compiled[0].session() as ours, compiled[1].session() as c:
        ours.steps, ours.updates, ours.seed, ours.course = 12, 12, 7, course
        ours.save(tmp_path / "ours")
        c.load(tmp_path / "ours")
        assert (c.steps, c.updates, c.seed, c.course) == (12, 12, 7, course)
        c.save(tmp_path / "c")
        ours.course = None
        ours.load(tmp_path / "c")
        assert ours.course == course


def test_a_checkpoint_of_other_weights_is_refused(tmp_path: Path) -> None:
    """Weights missing from a checkpoint must be those that it was trained on."""
    first, second = (
        pockengine.compile(_renewed(factor), None, backend="onnx", scheme="head-only")
        for factor in (1.0, 2.0)
    )
    with first.session() as session:
        session.train_step(draw(first.graph, 0), 0.01)
        session.save(tmp_path / "saved")
    with second.session() as session, pytest.raises(RuntimeFailure, match="other frozen weights"):
        session.load(tmp_path / "saved")


def _renewed(factor: float) -> Graph:
    graph = residual_net()
    graph.params["a.0.weight"].data = graph.params["a.0.weight"].data * np.float32(factor)
    return graph
