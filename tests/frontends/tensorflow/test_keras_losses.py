"""Losses of several outputs, as Keras takes them: a list or a dict, weighted or left out."""

from typing import Any

import keras
import numpy as np
import pytest

import pockengine
from pockengine.errors import ImportModelError
from pockengine.frontends.tensorflow import from_tensorflow

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def two_heads(*, named: bool = False) -> keras.Model:
    """Make a net of a box and a class; its outputs are a list, or named."""
    x = keras.Input((6,), name="x")
    hidden = keras.layers.Dense(8, activation="tanh")(x)
    box = keras.layers.Dense(3, name="box")(hidden)
    kind = keras.layers.Dense(5, name="kind", activation="softmax")(hidden)
    return keras.Model(x, {"box": box, "kind": kind} if named else [box, kind])


LOSSES: dict[str, tuple[bool, Any]] = {
    "list": (False, ["mse", "sparse_categorical_crossentropy"]),
    "weights": (False, [("mae", 0.3), (keras.losses.CategoricalCrossentropy(), 2.0)]),
    "left out": (False, [None, "sparse_categorical_crossentropy"]),
    "names of layers": (False, {"kind": "sparse_categorical_crossentropy", "box": "mse"}),
    "names of outputs": (True, {"box": ("huber", 4), "kind": "kl_divergence"}),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_sum_and_its_gradients_are_those_of_keras(name: str) -> None:
    named, loss = LOSSES[name]
    pockengine.compile(two_heads(named=named), (X,), loss=loss, check=True)


def test_targets_are_named_after_their_outputs() -> None:
    graph = from_tensorflow(two_heads(named=True), (X,), loss={"box": "mse"})

    assert [value.name for value in graph.inputs] == ["x", "target.box"]


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (["mse"], r"1 losses for 2 outputs \(0, 1\)"),
        ({"mask": "mse"}, "a loss for 'mask', which is no output; there are 0, 1"),
        ([None, None], "losses that are all None"),
        ([("mse", "big"), None], "a pair is .loss, weight."),
        (["mse", "hinges"], "unknown loss 'hinges'"),
    ],
)
def test_losses_that_do_not_fit_are_refused(loss: Any, words: str) -> None:
    with pytest.raises(ImportModelError, match=words):
        from_tensorflow(two_heads(), (X,), loss=loss)
