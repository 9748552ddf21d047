"""Generated C trains shared, factorized and reshaped params as in the oracle."""

from pathlib import Path

import numpy as np
import pytest

from pockengine.compiler.optim import Adagrad, AdamW, Optimizer, Sgd
from pockengine.compiler.options import Training
from pockengine.tests.backends.c.trainings import check_training
from pockengine.tests.compiler import lowered_training
from pockengine.tests.compiler.random_nets import draw_net
from pockengine.tests.compiler.random_trainings import draw_training

PARTS = 3
"""Number of random graphs per program: building takes most of the time."""
CASES: list[tuple[int, Optimizer, int]] = [
    (1, Sgd(), 1),
    (3, Adagrad(eps=0.1), 2),
    (4, AdamW(eps=0.1), 1),
]


@pytest.mark.parametrize(("seed", "optimizer", "micro_batches"), CASES)
def test_shared_params_train_as_by_the_oracle(
    seed: int, optimizer: Optimizer, micro_batches: int, tmp_path: Path
) -> None:
    graph = draw_net(seed, parts=PARTS)
    scheme = draw_training(graph, seed).scheme
    training = Training(scheme, optimizer, micro_batches=micro_batches)
    lowered_training.check_training(graph, training, seed)
    rng, steps = np.random.default_rng(seed), 2 * micro_batches
    batches = {}
    for value in graph.inputs:
        shape = (steps, *value.shape)
        numbers = rng.standard_normal(shape) if value.dtype.is_float else rng.integers(0, 4, shape)
        batches[value.name] = numbers.astype(value.dtype.numpy)
    check_training(graph, training, batches, tmp_path)
