"""Trainings in TVM: losses, weights and states equal C's, for every scheme."""

from pathlib import Path

import pytest

from pockengine.compiler.optim import Sgd
from pockengine.tests.backends.training_checks import check_moving, check_training
from pockengine.tests.backends.trainings import TRAININGS

LONG = ("mobile", "resnet-biases")
"""Trainings whose step takes TVM half a minute to compile; `mobile-sparse` has their operators."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.nightly] if name in LONG else []) for name in TRAININGS],
)
def test_a_training_is_that_of_c(name: str) -> None:
    check_training("tvm", name, atol=1e-3)  # logits of 8, summed in a different order


def test_a_training_moves_between_backends(tmp_path: Path) -> None:
    check_moving(("c", "tvm", "c"), Sgd(momentum=0.9), tmp_path)
