"""Models of Keras: sequential, functional and written as classes.

bazel run //tests/zoo:keras_zoo -- [--only PATTERN ...]
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from pockengine.tests.zoo.framework_step import Subject, compared
from pockengine.tests.zoo.verdict import command

SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
PICTURE, VOLUME, ROWS = (12, 12, 3), (4, 8, 8, 2), (6, 4)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def stack(shape: tuple[int, ...], *parts: Any, loss: Any = SPARSE) -> Subject:
    """Build a sequential model of these layers; the default loss adds a head of five classes."""
    keras.utils.set_random_seed(0)
    head = [layers.Dense(5)] if loss is SPARSE else []
    model = keras.Sequential([keras.Input(shape, batch_size=2), *parts, *head])
    return Subject(model, (random(2, *shape),), loss)


def words(*parts: Any) -> Subject:
    """Classify rows of token ids."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((6,), 2, dtype="int32"), layers.Embedding(30, 8), *parts, layers.Dense(5)]
    )
    return Subject(model, (np.arange(12, dtype=np.int32).reshape(2, 6),), SPARSE)


def residual() -> Subject:
    keras.utils.set_random_seed(0)
    x = keras.Input(PICTURE, 2)
    y = layers.Conv2D(8, 3, padding="same", use_bias=False)(x)
    y = layers.ReLU()(layers.BatchNormalization()(y))
    z = layers.SeparableConv2D(8, 3, padding="same", activation="swish")(y)
    z = layers.GlobalAveragePooling2D()(layers.Add()([y, z]))
    return Subject(keras.Model(x, layers.Dense(5)(z)), (random(2, *PICTURE),), SPARSE)


def transformer() -> Subject:
    keras.utils.set_random_seed(0)
    x = keras.Input(ROWS, 2)
    y = layers.LayerNormalization()(x)
    y = layers.Add()([x, layers.MultiHeadAttention(2, 4)(y, y, use_causal_mask=True)])
    y = layers.Add()([y, layers.Dense(4)(layers.Dense(8, activation="gelu")(y))])
    y = layers.Dense(5)(layers.GlobalAveragePooling1D()(y))
    return Subject(keras.Model(x, y), (random(2, *ROWS),), SPARSE)


def u_net() -> Subject:
    keras.utils.set_random_seed(0)
    x = keras.Input(PICTURE, 2)
    wide = layers.Conv2D(4, 3, padding="same", activation="elu")(x)
    deep = layers.Conv2D(8, 3, padding="same", activation="elu")(layers.MaxPooling2D()(wide))
    up = layers.Conv2DTranspose(4, 2, strides=2)(deep)
    both = layers.Concatenate()([wide, up, layers.UpSampling2D(interpolation="bilinear")(deep)])
    return Subject(keras.Model(x, layers.Conv2D(3, 1)(both)), (random(2, *PICTURE),), "mse")


def two_heads() -> Subject:
    """Predict a box and a class, each with its own loss."""
    keras.utils.set_random_seed(0)
    x = keras.Input((8,), 2)
    y = layers.Dense(8, activation="tanh")(x)
    outputs = {"box": layers.Dense(4)(y), "kind": layers.Dense(5, activation="softmax")(y)}
    loss = {"box": ("huber", 0.5), "kind": "sparse_categorical_crossentropy"}
    return Subject(keras.Model(x, outputs), (random(2, 8),), loss)


@tf.custom_gradient
def rounded(x: Any) -> Any:
    """Round; the gradient passes through."""
    return tf.round(x), lambda dy: dy


class Quantized(keras.layers.Layer):
    """A dense layer with weights rounded to quarters."""

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], 8), initializer="glorot_uniform")

    def call(self, x: Any) -> Any:
        return tf.matmul(x, rounded(self.kernel * 4.0) / 4.0)


ZOO = {
    "mlp": lambda: stack((8,), layers.Dense(8, activation="selu", kernel_regularizer="l2")),
    "residual": residual,
    "transformer": transformer,
    "u-net": u_net,
    "two-heads": two_heads,
    "quantized": lambda: stack((8,), Quantized(), layers.PReLU()),
    "lstm": lambda: words(layers.Bidirectional(layers.LSTM(4))),
    "gru": lambda: words(layers.GRU(4, return_sequences=True), layers.GRU(4)),
    "text-cnn": lambda: words(layers.Conv1D(8, 3, activation="relu"), layers.GlobalMaxPooling1D()),
    "conv-lstm": lambda: stack((3, 6, 6, 2), layers.ConvLSTM2D(4, 3), layers.Flatten()),
    "volumes": lambda: stack(
        VOLUME,
        layers.Conv3D(4, 3, padding="same", activation="relu"),
        layers.MaxPooling3D(2),
        layers.Conv3DTranspose(3, 2, strides=2),
        layers.AveragePooling3D(2),
        layers.Flatten(),
    ),
    "einsum": lambda: stack(
        ROWS,
        layers.EinsumDense("abc,bd->adc", output_shape=(3, 4), activation="tanh"),
        layers.UnitNormalization(),
        layers.Flatten(),
    ),
}

if __name__ == "__main__":
    command(ZOO, compared)()
