"""Keras models and TensorFlow functions: forward pass, names, loops, weight export."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, losses, ops, optimizers

from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.tensorflow import (
    from_tensorflow,
    is_tensorflow,
    load_weights,
    to_weights,
)
from pockengine.tests.frontends.tensorflow.checks import check_forward, check_training

LOGITS = losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.fixture(autouse=True)
def fresh() -> None:
    keras.utils.clear_session()  # resets the counters in layer names
    keras.utils.set_random_seed(0)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


class Block(layers.Layer):
    """One layer of a transformer encoder."""

    def __init__(self, width: int, heads: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.attention = layers.MultiHeadAttention(heads, width // heads, name="attention")
        self.norm1 = layers.LayerNormalization(epsilon=1e-6)
        self.norm2 = layers.LayerNormalization(epsilon=1e-6)
        self.up = layers.Dense(2 * width, activation="gelu")
        self.down = layers.Dense(width)

    def call(self, x: Any) -> Any:
        x = self.norm1(x + self.attention(x, x))
        return self.norm2(x + self.down(self.up(x)))


class Encoder(keras.Model):
    """Maps tokens to classes."""

    def __init__(self) -> None:
        super().__init__(name="encoder")
        self.embed = layers.Embedding(30, 16)
        self.position = layers.Embedding(12, 16)
        self.blocks = [Block(16, 4, name=f"block{i}") for i in range(2)]
        self.head = layers.Dense(4)

    def call(self, tokens: Any) -> Any:
        x = self.embed(tokens) + self.position(ops.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(ops.mean(x, axis=1))


def recurrent(unroll: bool = False, mask: bool = False) -> keras.Model:
    """Return a stack of an LSTM and a bidirectional GRU."""
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            layers.Embedding(20, 8, mask_zero=mask),
            layers.LSTM(6, return_sequences=True, unroll=unroll),
            layers.Bidirectional(layers.GRU(5, unroll=unroll)),
            layers.Dense(4),
        ],
        name="text",
    )


def tokens(length: int, words: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        (rng.integers(words, size=(5, length)).astype(np.int32), rng.integers(4, size=5))
        for _ in range(10)
    ]


def test_transformer_encoder_follows_keras() -> None:
    check_training(Encoder(), tokens(7, 30), LOGITS, optimizers.SGD(0.05, momentum=0.9))


@pytest.mark.parametrize("settings", [{}, {"unroll": True}, {"mask": True}], ids=str)
def test_recurrent_nets_are_unrolled(settings: dict[str, bool]) -> None:
    check_training(recurrent(**settings), tokens(6, 20), LOGITS, optimizers.SGD(0.1))


def test_layer_norms_and_losses_are_single_ops() -> None:
    graph = from_tensorflow(Encoder(), (tokens(7, 30)[0][0],), loss=LOGITS)
    count = [node.op for node in graph.nodes].count

    assert (count("layer_norm"), count("softmax"), count("cross_entropy")) == (4, 2, 1)
    assert count("rsqrt") == count("reduce_sum") == 0


def test_names_equal_keras_names() -> None:
    model = Encoder()
    graph = from_tensorflow(model, (tokens(7, 30)[0][0],))

    assert set(graph.params) == {variable.path for variable in model.variables}
    assert "encoder/block1/attention/query/kernel" in graph.params
    assert [value.name for value in graph.inputs] == ["tokens"]
    assert {node.scope for node in graph.nodes} >= {"encoder/block0/attention/query"}


def test_inputs_and_outputs_by_name() -> None:
    left, right = keras.Input((4,), name="left"), keras.Input((4,), name="right")
    total = layers.Dense(3)(layers.Concatenate()([left, right]))
    model = keras.Model([left, right], {"sum": total, "both": layers.Multiply()([left, right])})
    examples = {"right": random(2, 4), "left": random(2, 4) + 1}

    graph = from_tensorflow(model, examples)
    found, expected = run(graph, examples), model(examples)

    assert set(graph.outputs) == {"sum", "both"}
    for name, array in found.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-6)
    listed = from_tensorflow(model, [examples["left"], examples["right"]])
    assert [value.name for value in listed.inputs] == ["left", "right"]


def test_a_single_input_is_named_by_the_example() -> None:
    inputs = keras.Input((4,))
    model = keras.Model(inputs, layers.Dense(3)(inputs))

    for examples, name in [({"row": random(2, 4)}, "row"), ([random(2, 4)], "input")]:
        assert [value.name for value in from_tensorflow(model, examples).inputs] == [name]


FUNCTIONS: dict[str, Any] = {
    "slices": lambda x: x[:, ::-2, tf.newaxis, ..., 1] + x[:, 2:3, tf.newaxis, 0],
    "einsum": lambda x: tf.einsum("bij,bkj->ikb", x, x),
    "pads": lambda x: tf.pad(
        tf.pad(x, [[0, 0], [1, 2], [0, 0]]), [[0, 0], [2, 1], [0, 1]], "REFLECT"
    ),
    "stacks": lambda x: tf.stack(tf.unstack(x, axis=1)[::-1], axis=2),
    "splits": lambda x: tf.concat(tf.split(x, [1, 3], axis=1), axis=1),
    "map": lambda x: tf.map_fn(lambda row: tf.nn.softmax(row), x),
    "scatter of ones": lambda x: tf.one_hot(tf.argmax(x, axis=2), 3) * tf.linalg.band_part(x, 1, 0),
    "statistics": lambda x: tf.math.reduce_std(x, axis=1) + tf.norm(x, axis=1),
    "logic": lambda x: tf.where(
        tf.reduce_all(x > -1, axis=1), 1.0, tf.math.divide_no_nan(x[:, 0], 0.0)
    ),
    "clips": lambda x: tf.clip_by_value(x, -0.5, 0.5) * tf.maximum(x, 0.0) ** 3,
    "tiles": lambda x: tf.tile(x, [1, 2, 1]) + tf.repeat(x, 2, axis=1),
    "activations": lambda x: tf.nn.elu(x) + tf.nn.selu(x) + tf.nn.softplus(x) + tf.nn.leaky_relu(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_equals_tensorflow(name: str) -> None:
    check_forward(FUNCTIONS[name], random(2, 4, 3))


LAYERS: dict[str, Any] = {
    "transposed": lambda: layers.Conv2DTranspose(4, 3, strides=2, padding="same"),
    "dilated": lambda: layers.Conv2D(4, 3, dilation_rate=2),
    "dilated, padded": lambda: layers.Conv2D(4, 3, dilation_rate=2, padding="same"),
    "dilated depthwise": lambda: layers.DepthwiseConv2D(2, dilation_rate=(2, 2)),
    "dilated line": lambda: keras.Sequential(
        [layers.Reshape((40, 3)), layers.Conv1D(4, 3, dilation_rate=3, padding="causal")]
    ),
    "grouped": lambda: layers.Conv2D(6, 3, groups=3, padding="same"),
    "line": lambda: keras.Sequential([layers.Reshape((40, 3)), layers.Conv1D(4, 3, strides=2)]),
    "average": lambda: layers.AveragePooling2D(3, strides=2, padding="same"),
    "bilinear": lambda: layers.UpSampling2D(2, interpolation="bilinear"),
    "nearest": lambda: layers.Resizing(7, 5, interpolation="nearest"),
    "channels": lambda: layers.GroupNormalization(3),
    "depthwise": lambda: layers.DepthwiseConv2D(3, depth_multiplier=2),
    "units": lambda: layers.UnitNormalization(),
    "maxima": lambda: layers.GlobalMaxPooling2D(),
    "root": lambda: layers.RMSNormalization(),
    "parametric": lambda: layers.PReLU(),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer_equals_keras(name: str) -> None:
    model = keras.Sequential([keras.Input((8, 5, 3)), LAYERS[name]()])

    check_forward(model, random(2, 8, 5, 3))


class Scaler(tf.Module):
    """A module with its own state."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = tf.Variable(tf.ones((3,)) * 2, name="scale")
        self.peak = tf.Variable(tf.zeros((3,)), trainable=False, name="peak")
        self.calls = tf.Variable(0, trainable=False, name="calls")

    def __call__(self, x: Any) -> Any:
        self.calls.assign_add(1)
        self.peak.assign(tf.maximum(self.peak, tf.reduce_max(x, axis=0)))
        return tf.reduce_sum(x * self.scale + self.peak)


def test_module_states_are_updated() -> None:
    module, x = Scaler(), random(4, 3)
    graph = from_tensorflow(module, (x,))
    params = {name: param.data.copy() for name, param in graph.params.items()}

    found = run(graph, {"x": x}, params)

    assert list(graph.outputs) == ["loss"]
    assert {name: param.trainable for name, param in graph.params.items()} == {
        "scale": True,
        "peak": False,
    }
    np.testing.assert_allclose(found["loss"], module(x), rtol=1e-5)
    np.testing.assert_array_equal(params["peak"], module.peak.numpy())


def test_handwritten_norms_and_softmax_are_single_ops() -> None:
    def by_hand(x: Any) -> Any:
        y = x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), axis=-1, keepdims=True) + 1e-6)
        shares = tf.exp(y - tf.reduce_max(y, axis=-1, keepdims=True))
        return shares / tf.reduce_sum(shares, axis=-1, keepdims=True)

    graph = check_forward(by_hand, random(4, 6))

    assert [node.op for node in graph.nodes] == ["rms_norm", "softmax"]


def test_a_norm_with_empty_statistics_uses_the_batch() -> None:
    # as Keras 2's LayerNormalization calls it
    def norm(x: Any) -> Any:
        ones, zeros, none = tf.ones([6]), tf.zeros([6]), tf.constant([], tf.float32)
        rows = tf.reshape(x, [1, 6, -1, 1])
        inputs = {"mean": none, "variance": none, "data_format": "NCHW", "is_training": True}
        return tf.raw_ops.FusedBatchNormV3(x=rows, scale=ones, offset=zeros, **inputs)[0]

    check_forward(norm, random(6, 8))


def test_dilated_convolution_is_one_op() -> None:
    model = keras.Sequential([keras.Input((8, 8, 3)), layers.Conv2D(4, 3, dilation_rate=2)])
    graph = from_tensorflow(model, (random(2, 8, 8, 3),))

    assert [node.op for node in graph.nodes] == ["conv2d", "add"]
    assert graph.nodes[0].attrs["dilation"] == (2, 2)


def test_weights_round_trip_unchanged() -> None:
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), layers.DepthwiseConv2D(3), layers.Flatten(), layers.Dense(2)]
    )
    graph = from_tensorflow(model, (random(2, 8, 8, 3),))
    for variable, (name, array) in zip(model.variables, to_weights(graph).items(), strict=True):
        assert variable.path == name
        assert array.tobytes() == variable.numpy().tobytes()

    tuned = {name: array + 1 for name, array in to_weights(graph).items()}
    load_weights(model, tuned)

    for variable in model.variables:
        np.testing.assert_array_equal(variable.numpy(), tuned[variable.path])
    with pytest.raises(ImportModelError, match="has no variable 'x'; it has"):
        load_weights(model, {"x": np.zeros(3, np.float32)})
    with pytest.raises(ImportModelError, match=r"bias: shape \(5,\) is not the variable's \(2,\)"):
        load_weights(model, {model.variables[-1].path: np.zeros(5, np.float32)})


def test_tensorflow_models_are_recognized() -> None:
    assert is_tensorflow(recurrent())
    assert is_tensorflow(layers.Dense(2))
    assert is_tensorflow(tf.function(lambda x: x))
    assert is_tensorflow(Scaler())
    assert not is_tensorflow(lambda x: x)
    assert not is_tensorflow(np.zeros(3))


def test_a_scalar_variance_is_not_a_batch_norm() -> None:
    check_forward(lambda x: tf.nn.gelu(ops.var(x)), random(3))
