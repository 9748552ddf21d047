"""`compile(..., check=True)` of Keras models."""

import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import pockengine
from pockengine.check import CheckWarning
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
def test_a_correct_step_passes_and_leaves_the_model_unchanged(loss: Any) -> None:
    model, inputs = small()
    before = model.get_weights()
    pockengine.compile(model, inputs, loss=loss, check=True)
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert model.layers[-2].rate == 0.5


NOISE: dict[str, tuple[Callable[[], layers.Layer], tuple[int, ...]]] = {
    "normal": (lambda: layers.GaussianNoise(0.3), (7, 3)),
    "normal factors": (lambda: layers.GaussianDropout(0.2), (7, 3)),
    "alpha": (lambda: layers.AlphaDropout(0.2), (7, 3)),
    "maps": (lambda: layers.SpatialDropout1D(0.2), (7, 3)),
    "GRU": (lambda: layers.GRU(5, dropout=0.3, recurrent_dropout=0.2), (7, 3)),
    "LSTM": (lambda: layers.LSTM(5, dropout=0.3, recurrent_dropout=0.2), (7, 3)),
}


@pytest.mark.parametrize("name", NOISE)
def test_noise_is_disabled_on_both_sides_and_restored(name: str) -> None:
    make, shape = NOISE[name]
    model = keras.Sequential([keras.Input(shape), make(), layers.Flatten(), layers.Dense(5)])
    x = np.random.default_rng(0).standard_normal((4, *shape)).astype(np.float32)
    before = model.layers[0].get_config()
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckWarning)
        compiled = pockengine.compile(model, (x,), loss="cross_entropy", check=True)
    assert model.layers[0].get_config() == before
    assert "seed" in {value.name for value in compiled.graph.inputs}


def test_random_augmentation_is_compared_with_the_oracle() -> None:
    model = keras.Sequential(
        [keras.Input((8, 8, 3), batch_size=2), layers.RandomFlip(), layers.Conv2D(4, 3)]
    )
    x = np.random.default_rng(0).standard_normal((2, 8, 8, 3)).astype(np.float32)
    with pytest.warns(CheckWarning, match="with the oracle alone: it draws random numbers"):
        pockengine.compile(model, (x,), loss="mse", check=True)


def test_a_wrong_import_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "Tanh", RULES["Sigmoid"])
    model, inputs = small()
    with pytest.raises(CheckError, match=r"small: the .* is wrong .* of TensorFlow by"):
        pockengine.compile(model, inputs, loss="cross_entropy", check=True)


class Centered(keras.Model):
    """Branches on its mode: centers the input in inference only."""

    def __init__(self) -> None:
        super().__init__(name="centered")
        self.dense = layers.Dense(4)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.dense(x if training else x - 0.5)


def test_a_model_with_another_prediction_in_inference_is_reported() -> None:
    x = np.random.default_rng(0).random((8, 6), np.float32)
    with pytest.raises(CheckError, match="centered: output 'output' in evaluation mode is wrong"):
        pockengine.compile(Centered(), (x,), loss="cross_entropy", check=True)
