"""Ten steps by the whole compiler and our oracle, compared with Keras."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, losses, optimizers

from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.tensorflow import from_tensorflow, to_optimizer
from pockengine.tests.frontends.tensorflow.checks import check_training, pictures


@pytest.fixture(autouse=True)
def seed() -> None:
    keras.utils.set_random_seed(0)


def cnn() -> keras.Model:
    """Return a net of plain, depthwise and separable convolutions, batch norms and pooling."""
    return keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            layers.Conv2D(8, 3, strides=2, padding="same", name="conv1"),
            layers.BatchNormalization(name="bn1"),
            layers.ReLU(6.0),
            layers.DepthwiseConv2D(3, strides=2, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9, center=False),
            layers.ReLU(),
            layers.SeparableConv2D(6, 3, depth_multiplier=2, activation="gelu"),
            layers.MaxPool2D(2),
            layers.Flatten(),
            layers.Dense(5, activation="softmax", kernel_regularizer="l2"),
        ],
        name="cnn",
    )


def dense() -> keras.Model:
    """Return a small net whose gradients are all far from zero."""
    return keras.Sequential(
        [keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(5)], name="dense"
    )


def rows(target: str = "labels") -> list[tuple[np.ndarray, np.ndarray]]:
    """Return batches of random rows of six numbers with targets for five outputs."""
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(12):
        x = rng.standard_normal((4, 6)).astype(np.float32)
        shares = rng.random((4, 5)).astype(np.float32)
        y = {
            "labels": rng.integers(5, size=4),
            "numbers": 2 * shares - 1,
            "bits": np.round(shares),
            "shares": shares / shares.sum(1, keepdims=True),
        }[target]
        batches.append((x, y))
    return batches


def test_cnn_follows_keras() -> None:
    check_training(cnn(), pictures(6, 16, 5))


def test_frozen_layers_do_not_change() -> None:
    model = cnn()
    model.get_layer("conv1").trainable = False
    model.get_layer("bn1").trainable = False  # Keras then uses the running statistics

    graph = from_tensorflow(model, pictures(6, 16, 5)[0][:1], loss="mse")
    assert not graph.params["cnn/conv1/kernel"].trainable
    check_training(model, pictures(6, 16, 5))


FACTORS = (1.0, 0.1, 0.1, 2.0, 1.0, 0.5, 0.01, 1.5, 1.0, 0.3, 0.7, 1.0)
"""Learning rate of each step relative to the optimizer's, as from a schedule."""

OPTIMIZERS = {
    "SGD": optimizers.SGD(0.05, weight_decay=0.01),
    "SGD with momentum": optimizers.SGD(0.05, momentum=0.9),
    "SGD with Nesterov momentum": optimizers.SGD(
        0.05, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "Adam": optimizers.Adam(0.01, epsilon=1e-3),
    "AdamW": optimizers.AdamW(0.01, weight_decay=0.1),
    "RMSprop": optimizers.RMSprop(0.01, epsilon=1e-3),
    "RMSprop, centered": optimizers.RMSprop(0.01, momentum=0.5, centered=True, weight_decay=0.1),
    "Adagrad": optimizers.Adagrad(0.05),
    "Adafactor": optimizers.Adafactor(0.05, weight_decay=0.1),
    "Lion": optimizers.Lion(0.001, weight_decay=0.1),
    "Adam, AMSGrad": optimizers.Adam(0.01, 0.5, 0.6, 1e-3, amsgrad=True, weight_decay=0.1),
    "Adadelta": optimizers.Adadelta(1.0, epsilon=1e-5, weight_decay=0.1),
    "Adamax": optimizers.Adamax(0.01, epsilon=1e-3, weight_decay=0.1),
    "Nadam": optimizers.Nadam(0.01, epsilon=1e-3, weight_decay=0.1),
    "Lamb": optimizers.Lamb(0.01, epsilon=1e-3, weight_decay=0.1),
    "Muon": optimizers.Muon(0.01, epsilon=1e-3, adam_lr_ratio=0.5),
    "Muon with Adam": optimizers.Muon(
        0.01, epsilon=1e-3, exclude_layers=["dense_1"], nesterov=False, weight_decay=0.1
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_equals_keras(name: str) -> None:
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)

    check_training(dense(), rows(), loss, OPTIMIZERS[name], factors=FACTORS)


LOSSES: dict[str, tuple[Any, str, str]] = {
    # loss, kind of target, last activation
    "sparse from logits": (losses.SparseCategoricalCrossentropy(True), "labels", "linear"),
    "sparse": (losses.SparseCategoricalCrossentropy(), "labels", "softmax"),
    "categorical": ("categorical_crossentropy", "shares", "softmax"),
    "smoothed": (losses.CategoricalCrossentropy(True, label_smoothing=0.1), "shares", "linear"),
    "binary": (losses.BinaryCrossentropy(), "bits", "sigmoid"),
    "binary from logits": (losses.BinaryCrossentropy(from_logits=True), "bits", "linear"),
    "mse": ("mse", "numbers", "linear"),
    "squares": (losses.MeanSquaredError(reduction="sum"), "numbers", "linear"),
    "mae": ("mae", "numbers", "linear"),
    "huber": (losses.Huber(0.5), "numbers", "linear"),
    "kl": (losses.KLDivergence(), "shares", "softmax"),
    "cosine": (losses.CosineSimilarity(), "numbers", "linear"),
    "user-defined": (lambda y, p: keras.ops.mean((y - p) ** 4, -1), "numbers", "linear"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss_equals_keras(name: str) -> None:
    loss, target, activation = LOSSES[name]
    model = keras.Sequential([dense(), layers.Activation(activation)])

    check_training(model, rows(target), loss)


def test_cross_entropy_is_one_op_from_logits_and_from_probabilities() -> None:
    x = rows()[0][0]
    logits = from_tensorflow(dense(), (x,), loss=losses.SparseCategoricalCrossentropy(True))
    ours = from_tensorflow(dense(), (x,), loss="cross_entropy")

    assert [node.op for node in logits.nodes] == [node.op for node in ours.nodes]


def test_batch_norm_and_dropout_are_recognized() -> None:
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.BatchNormalization(),
            layers.SpatialDropout2D(0.25),
            layers.Dropout(0.5),
            layers.LayerNormalization(),
        ]
    )
    graph = from_tensorflow(model, (np.zeros((2, 8, 8, 3), np.float32),))

    ops = [node.op for node in graph.nodes if node.op not in ("mul", "add", "reshape")]
    assert ops == ["batch_norm", "dropout", "dropout", "layer_norm", "ema_update", "ema_update"]
    assert [node.attrs["p"] for node in graph.nodes if node.op == "dropout"] == [0.25, 0.5]
    assert len({node.attrs["stream"] for node in graph.nodes if node.op == "dropout"}) == 2


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (optimizers.Ftrl(), "Ftrl has no equivalent; known are Adadelta, Adafactor, Adagrad, Adam"),
        (optimizers.LossScaleOptimizer(optimizers.SGD()), "give its inner_optimizer.*mixed_bf"),
        (optimizers.Muon(rms_rate=0.3), "rms_rate=0.3.*leave it at 0.2"),
        (optimizers.Muon(exclude_layers=["den.*"]), "give names, not expressions"),
        (optimizers.SGD(global_clipnorm=1.0), "global_clipnorm=1.0.*pass clip="),
    ],
)
def test_unsupported_optimizer_settings_are_reported(
    optimizer: optimizers.Optimizer, message: str
) -> None:
    with pytest.raises(ImportModelError, match=message):
        to_optimizer(optimizer)


def test_unknown_losses_and_probabilities_as_logits_are_refused() -> None:
    x = pictures(2, 16, 5)[0][0]
    model, target = cnn(), np.array([3] * len(x))
    graph = from_tensorflow(model, (x,), loss="cross_entropy")
    (feed,) = (value.name for value in graph.inputs if value.name != "target")
    with pytest.raises(ImportModelError, match="unknown loss 'nonsense'; known are cross_entropy"):
        from_tensorflow(cnn(), (x,), loss="nonsense")
    found = run(graph, {feed: x, "target": target})["loss"]
    expected = losses.sparse_categorical_crossentropy(target, model(x, training=True))
    penalty = float(sum(model.losses))  # the head's regularizer
    assert float(found) == pytest.approx(float(np.mean(expected)) + penalty, rel=1e-4)
