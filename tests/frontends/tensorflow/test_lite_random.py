"""Random int8 TFLite files: every tensor equals the reference interpreter's bit for bit."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import pockengine
from pockengine.backends.registry import open_session
from pockengine.tests.frontends.tensorflow.int8_files import check_file, int8_file, interpreter_of

L = keras.layers
ROWS = 64


class Product(keras.layers.Layer):
    """The product of two activations: BATCH_MATMUL."""

    def call(self, a: Any, b: Any) -> Any:
        return keras.ops.matmul(a, b)


class Mean(keras.layers.Layer):
    """The mean over channels."""

    def call(self, x: Any) -> Any:
        return keras.ops.mean(x, axis=-1, keepdims=True)


def linear_net(rng: np.random.Generator) -> keras.Model:
    """Return linear layers of matrices and rows, with a product of activations and a layer norm."""
    width = lambda: int(rng.integers(3, 200))  # noqa: E731
    act = lambda: str(rng.choice(["linear", "relu", "relu6"]))  # noqa: E731
    x = y = keras.Input((4, width()), batch_size=ROWS)
    for _ in range(int(rng.integers(1, 3))):
        y = L.Dense(width(), act(), bias_initializer="glorot_normal")(y)
    if rng.integers(2):
        y = Product()(y, L.Permute((2, 1))(L.Dense(y.shape[2])(y)))
    y = L.Flatten()(L.LayerNormalization()(y))
    for _ in range(3):
        y = L.Dense(width(), act())(y)
    return keras.Model(x, y)


def picture_net(rng: np.random.Generator) -> keras.Model:
    """Return convolutions, with averages over padding and leaky activations between them."""
    number = lambda least, most: int(rng.integers(least, most + 1))  # noqa: E731
    size = lambda: (number(1, 4), number(1, 4))  # noqa: E731
    padding = lambda: str(rng.choice(["same", "valid"]))  # noqa: E731
    bias = {"bias_initializer": "glorot_normal"}
    slopes = keras.initializers.RandomUniform(-0.2, 0.5)
    x = y = keras.Input((number(9, 14), number(9, 14), number(1, 9)), batch_size=4)
    for _ in range(2):
        y = L.Conv2D(number(1, 24), number(1, 3), padding=padding(), **bias)(y)
        y = L.LeakyReLU(float(rng.uniform(0.01, 0.9)))(y)
        y = L.DepthwiseConv2D(number(1, 3), number(1, 2), padding=padding(), **bias)(y)
        shared = [None, [1, 2], [1, 2, 3]][number(0, 2)]
        y = L.PReLU(alpha_initializer=slopes, shared_axes=shared)(y)
        kernel, stride = (number(1, 4), number(1, 4)), number(1, 3)
        y = L.Conv2DTranspose(number(1, 24), kernel, stride, padding=padding(), **bias)(y)
        y = L.AveragePooling2D(size(), size(), padding="same")(y)
    return keras.Model(x, L.Multiply()([L.Subtract()([y, Mean()(y)]), y]))


def operators_of(path: Path) -> set[str]:
    """Return the names of a file's operators."""
    return {detail["op_name"] for detail in interpreter_of(path)._get_ops_details()}


NETS = {
    "linear": (linear_net, {"FULLY_CONNECTED", "BATCH_MATMUL", "SQUARED_DIFFERENCE"}),
    "picture": (
        picture_net,
        {
            "AVERAGE_POOL_2D",
            "MEAN",
            "CONV_2D",
            "DEPTHWISE_CONV_2D",
            "LEAKY_RELU",
            "PRELU",
            "SUB",
            "TRANSPOSE_CONV",
        },
    ),
}


@pytest.mark.parametrize("kind", NETS)
def test_random_nets_equal_the_interpreter(kind: str, tmp_path: Path) -> None:
    build, expected = NETS[kind]
    found = set()
    for seed in range(6):
        keras.utils.set_random_seed(seed)
        path = int8_file(build(np.random.default_rng(seed)), tmp_path / f"{seed}.tflite")
        found |= operators_of(path)
        check_file(path)
    assert expected <= found


@pytest.mark.parametrize(("kind", "seed"), [("linear", 1), ("picture", 0)])
def test_compiled_nets_predict_as_the_interpreter(kind: str, seed: int, tmp_path: Path) -> None:
    keras.utils.set_random_seed(seed)
    path = int8_file(NETS[kind][0](np.random.default_rng(seed)), tmp_path / "net.tflite")
    reference = interpreter_of(path)
    (inputs,), (outputs,) = reference.get_input_details(), reference.get_output_details()
    x = np.random.default_rng(0).integers(-128, 128, inputs["shape"]).astype(np.int8)
    reference.set_tensor(inputs["index"], x)
    reference.invoke()
    expected = reference.get_tensor(outputs["index"])

    compiled = pockengine.compile(path, (x,), loss="mse", quantize=pockengine.Int8())

    with open_session(compiled.artifact) as session:
        batch = {compiled.graph.inputs[0].name: x}
        (found,) = session.predict(batch).values()
        loss = session.train_step({**batch, "target": found + 1}, lr=1e-3)["loss"]
    scale, zero = outputs["quantization"]
    np.testing.assert_array_equal(np.rint(found / scale + zero), expected)
    np.testing.assert_allclose(loss, 1, rtol=1e-5)
