"""Losses of several outputs in Keras's forms: a list or a dict, weighted or omitted."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import pockengine
from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.tensorflow import from_tensorflow

Ctc = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def two_heads(*, named: bool = False) -> keras.Model:
    """Make a net that predicts a box and a class; its outputs are a list, or named."""
    x = keras.Input((6,), name="x")
    hidden = keras.layers.Dense(8, activation="tanh")(x)
    box = keras.layers.Dense(3, name="box")(hidden)
    kind = keras.layers.Dense(5, name="kind", activation="softmax")(hidden)
    return keras.Model(x, {"box": box, "kind": kind} if named else [box, kind])


LOSSES: dict[str, tuple[bool, Any]] = {
    "list": (False, ["mse", "sparse_categorical_crossentropy"]),
    "weights": (False, [("mae", 0.3), (keras.losses.CategoricalCrossentropy(), 2.0)]),
    "omitted": (False, [None, "sparse_categorical_crossentropy"]),
    "names of layers": (False, {"kind": "sparse_categorical_crossentropy", "box": "mse"}),
    "names of outputs": (True, {"box": ("huber", 4), "kind": "kl_divergence"}),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_sum_and_its_gradients_equal_keras(name: str) -> None:
    named, loss = LOSSES[name]
    pockengine.compile(two_heads(named=named), (X,), loss=loss, check=True)


@pytest.mark.parametrize("name", ["CategoricalGeneralizedCrossEntropy", "Circle"])
def test_losses_of_labels_and_their_gradients_equal_keras(name: str) -> None:
    kind = two_heads(named=True)
    model = keras.Model(kind.inputs, kind.outputs[1])
    pockengine.compile(model, (X,), loss=getattr(keras.losses, name)(), check=True)


def test_a_loss_that_does_not_take_its_target_is_told_what_it_gets() -> None:
    def of_labels(target: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(target, output)

    words = r"the loss of_labels .* a target of float32 \[\d, 3\]: one for labels .* 'sparse'"
    with pytest.raises(ImportModelError, match=words):
        from_tensorflow(two_heads(), (X,), loss=[of_labels, None])


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
def test_losses_that_do_not_match_the_outputs_are_refused(loss: Any, words: str) -> None:
    with pytest.raises(ImportModelError, match=words):
        from_tensorflow(two_heads(), (X,), loss=loss)


FRAMES = np.random.default_rng(1).standard_normal((2, 7, 6)).astype(np.float32)
LABELS = np.array([[1, 2, 2], [3, 1, 0]], np.int32)


class CtcModel(tf.Module):
    """Maps frames to classes; returns the CTC loss of labels padded at the end."""

    def __init__(self, ctc: Ctc) -> None:
        super().__init__()
        self.net, self.ctc = keras.layers.Dense(5), ctc
        self.net.build((2, 7, 6))

    def __call__(self, frames: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        lengths = tf.reduce_sum(tf.cast(labels > 0, tf.int32), 1)
        return tf.reduce_sum(self.ctc(labels, self.net(frames), lengths, tf.constant([7, 6])))


CTC: dict[str, Ctc] = {
    "blank before": lambda y, x, n, t: tf.nn.ctc_loss(y, x, n, t, logits_time_major=False),
    "blank within": lambda y, x, n, t: tf.nn.ctc_loss(
        tf.where(y > 2, y + 1, y), x, n, t, logits_time_major=False, blank_index=3
    ),
    "blank behind": lambda y, x, n, t: tf.nn.ctc_loss(
        y, x, n, t, logits_time_major=False, blank_index=-1
    ),
    "time first": lambda y, x, n, t: tf.nn.ctc_loss(
        y, tf.transpose(x, [1, 0, 2]), n, t, blank_index=0
    ),
    "keras": lambda y, x, n, t: keras.ops.ctc_loss(y, x, n, t, mask_index=0),
    "weighted": lambda y, x, n, t: (
        tf.nn.ctc_loss(y, x, n, t, logits_time_major=False) * tf.constant([0.3, 2.0])
    ),
}


@pytest.mark.parametrize("name", CTC)
def test_ctc_losses_and_their_gradients_equal_tensorflow(name: str) -> None:
    pockengine.compile(CtcModel(CTC[name]), (FRAMES, LABELS), check=True)


def test_a_ctc_loss_without_trained_params_equals_tensorflow() -> None:
    def loss_function(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return tf.nn.ctc_loss(labels, logits, [3, 2], [7, 7], logits_time_major=False)

    graph = from_tensorflow(loss_function, (FRAMES, LABELS))

    (found,) = run(graph, {"logits": FRAMES, "labels": LABELS}).values()
    np.testing.assert_allclose(
        found, loss_function(tf.constant(FRAMES), tf.constant(LABELS)), rtol=1e-5
    )


def test_keras_ctc_loss_takes_a_label_per_frame() -> None:
    model = keras.Sequential([keras.Input((7, 6), batch_size=2), keras.layers.Dense(5)])
    graph = from_tensorflow(model, (FRAMES,), loss=keras.losses.CTC())
    labels = np.pad(LABELS, ((0, 0), (0, 4))).astype(np.int64)
    expected = keras.losses.CTC()(labels, model(FRAMES))

    found = run(graph, {graph.inputs[0].name: FRAMES, "target": labels})["loss"]

    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_sparse_ctc_labels_are_refused() -> None:
    def loss_function(logits: tf.Tensor) -> tf.Tensor:
        labels = tf.sparse.from_dense([[1, 2], [3, 0]])
        logits = tf.transpose(logits, [1, 0, 2])
        return tf.nn.ctc_loss(labels, logits, None, [7, 7], blank_index=0)

    with pytest.raises(ImportModelError, match=r"CTCLoss.*give tf\.nn\.ctc_loss dense"):
        from_tensorflow(loss_function, (FRAMES,))
