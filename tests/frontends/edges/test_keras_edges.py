"""TensorFlow's and Keras's functions at their edges: as TensorFlow's, by the oracle and in C."""

import pytest

from pockengine.tests.frontends.edges import keras_frontend
from pockengine.tests.frontends.edges.keras_cases import groups
from pockengine.tests.frontends.edges.sweep import Sweep

SWEEP = Sweep(keras_frontend, groups())
OF_INFINITIES = "a product or quotient of infinities"
ANGLE = "0 / 0 in TensorFlow, 0 here as in PyTorch"
PLACE_OF_NAN = "TensorFlow's place of the largest among NaN depends on their order"
ROUNDED = "TensorFlow's exp(x) - 1 is 0 for small x below 0, and so is its slope's case"
WHOLE = "the quotient by infinity is -1 rounded down, 0 in TensorFlow"
ROOT = "the root of -0 or minus infinity, which TensorFlow's optimiser takes for a power or not"

EXEMPT = {
    "all prod of minus infinities: gradient 0": OF_INFINITIES,
    "all prod of with infinity: gradient 0": OF_INFINITIES,
    "argmax: result 0": PLACE_OF_NAN,
    "argmax: result 1": PLACE_OF_NAN,
    "ops.hard_silu: gradient 0": OF_INFINITIES,
    "ops.selu: gradient 0": ROUNDED,
    "ops.softsign: gradient 0": OF_INFINITIES,
    "prod: gradient 0": OF_INFINITIES,
    "tf.atan2: gradient 0": ANGLE,
    "tf.atan2: gradient 1": ANGLE,
    "tf.math.floormod: gradient 1": WHOLE,
    "tf.math.softsign: gradient 0": OF_INFINITIES,
    "tf.nn.selu: gradient 0": ROUNDED,
    "tf.pow -0.5: result 0": ROOT,
    "tf.pow 0.5: gradient 0": ROOT,
    "tf.pow 1.5: gradient 0": ROOT,
}
"""Case and part -> why it may differ. An entry that is not needed fails the test."""


@pytest.mark.parametrize("group", SWEEP.groups)
def test_edges_are_tensorflows_by_the_oracle(group: str) -> None:
    assert [t for place, t in SWEEP.wrong_by_oracle(group).items() if place not in EXEMPT] == []


@pytest.mark.parametrize("group", SWEEP.groups)
def test_edges_are_tensorflows_in_generated_c(group: str) -> None:
    assert [t for place, t in SWEEP.wrong_in_c(group).items() if place not in EXEMPT] == []


def test_each_exemption_is_needed() -> None:
    places = {place for group in SWEEP.groups for place in SWEEP.wrong_by_oracle(group)}
    assert sorted(set(EXEMPT) - places) == []
