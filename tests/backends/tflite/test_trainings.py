"""Trainings in TFLite: losses, weights and states equal C's, for every scheme."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pockengine
from pockengine.compiler.optim import Adam, Optimizer, Sgd
from pockengine.tests.backends.inputs import draw
from pockengine.tests.backends.training_checks import check_moving, check_training
from pockengine.tests.backends.trainings import SMOOTH, TRAININGS
from pockengine.tests.compiler.small_nets import residual_net

RATE = 0.01


@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_is_that_of_c(name: str) -> None:
    check_training("tflite", name)


@pytest.mark.parametrize("optimizer", [Sgd(), Sgd(momentum=0.9), Adam(**SMOOTH)], ids=repr)
def test_a_training_moves_through_three_backends(optimizer: Optimizer, tmp_path: Path) -> None:
    check_moving(("c", "onnx", "tflite"), optimizer, tmp_path)


def test_micro_batches_are_collected_and_applied() -> None:
    graph = residual_net()
    options: dict[str, Any] = {"optimizer": Sgd(momentum=0.9), "micro_batches": 2}
    ours, c = (
        pockengine.compile(graph, None, backend=backend, **options) for backend in ("tflite", "c")
    )
    with ours.session() as session, c.session() as other:
        for trainer in (session, other):
            for number in range(4):
                trainer.train_step(draw(graph, number), RATE)
        for key, array in other.params().items():
            np.testing.assert_allclose(session.get_param(key), array, rtol=1e-5, atol=1e-5)
