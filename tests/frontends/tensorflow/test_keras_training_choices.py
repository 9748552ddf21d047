"""Trained params of Keras models: presets find biases, optimizer names mean Keras's."""

from collections.abc import Callable, Sequence

import keras
import numpy as np
import pytest
from keras import layers, optimizers

import pockengine
from pockengine.compiler.optim import RAdam
from pockengine.compiler.sparse.presets import preset
from pockengine.errors import PockEngineError
from pockengine.frontends.frontend import Source
from pockengine.frontends.registry import find_source
from pockengine.frontends.tensorflow import to_optimizer

WORDS, PICTURE = (5, 4), (8, 8, 3)


def source(shape: Sequence[int], *parts: keras.Layer) -> Source:
    keras.utils.clear_session()  # resets the counters in layer names
    model = keras.Sequential([keras.Input(shape, batch_size=2), *parts, layers.Dense(3)])
    return find_source(model, (np.zeros((2, *shape), np.float32),))


def normed() -> list[keras.Layer]:
    return [
        layers.SeparableConv2D(4, 3),
        layers.BatchNormalization(),
        layers.Conv2D(4, 3),
        layers.GroupNormalization(2),
        layers.LayerNormalization(),
        layers.GlobalAveragePooling2D(),
    ]


NORMED = {
    *("separable_conv2d/bias", "batch_normalization/beta", "conv2d/bias"),
    *("group_normalization/beta", "layer_normalization/beta"),
}
BIDIRECTIONAL_BIASES = {
    f"bidirectional/{way}_lstm/lstm_cell/bias" for way in ("forward", "backward")
}


@pytest.mark.parametrize(
    ("shape", "parts", "biases"),
    [
        (WORDS, lambda: [layers.LSTM(6)], {"lstm/lstm_cell/bias"}),
        (WORDS, lambda: [layers.GRU(6)], {"gru/gru_cell/bias"}),
        (WORDS, lambda: [layers.Bidirectional(layers.LSTM(3, name="lstm"))], BIDIRECTIONAL_BIASES),
        (PICTURE, normed, NORMED),
    ],
)
def test_bias_only_trains_the_biases_and_the_head(
    shape: Sequence[int], parts: Callable[[], list[keras.Layer]], biases: set[str]
) -> None:
    graph = source(shape, *parts()).graph("cross_entropy")

    trained = preset("bias-only", graph).resolve(graph)
    head = preset("head-only", graph).resolve(graph)

    assert {name.removeprefix("sequential/") for name in trained} == {
        *biases,
        *("dense/kernel", "dense/bias"),
    }
    assert set(head) == {"sequential/dense/kernel", "sequential/dense/bias"}


@pytest.mark.parametrize(
    ("name", "keras_optimizer"),
    [
        ("sgd", optimizers.SGD()),
        ("adam", optimizers.Adam()),
        ("Adam", optimizers.Adam()),
        ("adamw", optimizers.AdamW()),
        ("rmsprop", optimizers.RMSprop()),
        ("adagrad", optimizers.Adagrad()),
        ("lion", optimizers.Lion()),
        ("adafactor", optimizers.Adafactor()),
        ("nadam", optimizers.Nadam()),
    ],
)
def test_optimizer_names_mean_keras_optimizers(name: str, keras_optimizer: keras.Optimizer) -> None:
    assert source(WORDS, layers.Flatten()).optimizer(name) == to_optimizer(keras_optimizer)


def test_names_unknown_to_keras_are_pockengines() -> None:
    assert source(WORDS, layers.Flatten()).optimizer("RAdam") == RAdam()


@pytest.mark.parametrize(
    ("name", "words"),
    [("adma", "unknown optimizer 'adma' of Keras"), ("ftrl", "Ftrl has no equivalent")],
)
def test_name_without_an_equivalent_is_an_error(name: str, words: str) -> None:
    with pytest.raises(PockEngineError, match=words):
        source(WORDS, layers.Flatten()).optimizer(name)


STEPS = 12


def test_a_keras_schedule_sets_the_rate() -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((6,), batch_size=4), layers.Dense(3)])
    schedule = optimizers.schedules.CosineDecay(0.01, STEPS, warmup_target=0.1, warmup_steps=4)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4 * STEPS, 6)).astype(np.float32)
    y = rng.standard_normal((4 * STEPS, 3)).astype(np.float32)
    compiled = pockengine.compile(model, (x[:4],), loss="mse", optimizer=optimizers.SGD(schedule))

    compiled.fit((x, y), epochs=1, lr=schedule, shuffle=False)

    model.compile(optimizers.SGD(schedule), "mse")
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    for ours, theirs in zip(compiled.tuned(), model.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
