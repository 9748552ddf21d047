"""`compile(..., check=True)` of Keras models."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import pockengine
from pockengine.errors import CheckError
from pockengine.frontends.tensorflow.ops import RULES


def small() -> tuple[keras.Model, tuple[np.ndarray]]:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(6, 3, padding="same", kernel_regularizer="l2"),
            layers.BatchNormalization(),
            layers.Activation("tanh"),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.5),
            layers.Dense(5),
        ],
        name="small",
    )
    x = np.random.default_rng(0).standard_normal((4, 8, 8, 3)).astype(np.float32)
    return model, (x,)


@pytest.mark.parametrize("loss", ["cross_entropy", "mse", keras.losses.Huber()])
def test_a_right_step_passes_and_leaves_the_model_as_it_was(loss: Any) -> None:
    model, inputs = small()
    before = model.get_weights()
    pockengine.compile(model, inputs, loss=loss, check=True)
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert model.layers[-2].rate == 0.5


def test_a_wrong_import_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "Tanh", RULES["Sigmoid"])
    model, inputs = small()
    with pytest.raises(CheckError, match=r"small: the .* is wrong .* of TensorFlow by"):
        pockengine.compile(model, inputs, loss="cross_entropy", check=True)
