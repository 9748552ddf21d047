"""Keras layers compared with Keras's own results: volumes, sorting, noise, 16 bits."""

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import pockengine
from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.tensorflow import from_tensorflow
from pockengine.tests.frontends.tensorflow.checks import check_forward

VOLUME = (4, 6, 6, 3)
VOLUMES: dict[str, Callable[[], keras.layers.Layer]] = {
    "conv": lambda: layers.Conv3D(4, 3, activation="tanh"),
    "strided conv": lambda: layers.Conv3D(4, 3, strides=2, padding="same"),
    "dilated conv": lambda: layers.Conv3D(4, 2, dilation_rate=2),
    "transposed": lambda: layers.Conv3DTranspose(4, 3, strides=2),
    "transposed same": lambda: layers.Conv3DTranspose(4, 3, strides=2, padding="same"),
    "max": lambda: layers.MaxPooling3D(3, 2, "same"),
    "average": lambda: layers.AveragePooling3D(3, 2, "same"),
    "dropout": lambda: layers.SpatialDropout3D(0.4),
}


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def outputs(model: keras.Model, x: np.ndarray, *, training: bool = False) -> np.ndarray:
    graph = from_tensorflow(model, (x,), training=training)
    feed = {"seed": np.asarray(4, np.int32), **{v.name: x for v in graph.inputs[:1]}}
    found = run(graph, {value.name: feed[value.name] for value in graph.inputs})
    return next(iter(found.values()))


@pytest.mark.parametrize("name", VOLUMES)
def test_volumes_equal_keras(name: str) -> None:
    model = keras.Sequential([keras.Input(VOLUME, batch_size=2), VOLUMES[name]()])
    x = random(2, *VOLUME)

    np.testing.assert_allclose(outputs(model, x), model(x), rtol=1e-4, atol=1e-5)


def test_a_net_of_volumes_trains_in_c_as_in_keras() -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input(VOLUME, batch_size=2),
            VOLUMES["strided conv"](),
            VOLUMES["max"](),
            VOLUMES["transposed"](),
            VOLUMES["average"](),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )

    pockengine.compile(model, (random(2, *VOLUME),), loss="mse", check=True)


def test_values_are_discretized_into_bins() -> None:
    model = keras.Sequential([keras.Input((6,)), layers.Discretization([-0.5, 0.0, 1.0])])
    x = random(2, 6)

    np.testing.assert_array_equal(outputs(model, x), model(x))


NOISE: dict[str, tuple[Callable[[], keras.layers.Layer], float]] = {
    "GaussianNoise": (lambda: layers.GaussianNoise(0.3), 0.3),
    "GaussianDropout": (lambda: layers.GaussianDropout(0.2), 0.5),
}


@pytest.mark.parametrize("name", NOISE)
def test_noise_has_its_deviation_in_training_and_is_absent_in_inference(name: str) -> None:
    layer, deviation = NOISE[name]
    model, x = keras.Sequential([keras.Input((1000,)), layer()]), np.ones((2, 1000), np.float32)

    noisy = outputs(model, x, training=True)

    np.testing.assert_array_equal(outputs(model, x), x)
    assert noisy.mean() == pytest.approx(1, abs=0.05)
    assert noisy.std() == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_mixed_precision_trains_as_in_keras(dtype: str) -> None:
    keras.utils.set_random_seed(0)
    policy = f"mixed_{dtype}"
    model = keras.Sequential(
        [
            keras.Input((6, 6, 3), batch_size=2),
            layers.Conv2D(4, 3, activation="gelu", dtype=policy),
            layers.MaxPooling2D(2, dtype=policy),
            layers.Flatten(dtype=policy),
            layers.LayerNormalization(dtype=policy),
            layers.Dense(3, dtype=policy),
        ]
    )
    x = random(2, 6, 6, 3)

    compiled = pockengine.compile(model, (x,), loss="mse", check=True)

    graph = from_tensorflow(model, (x,), training=False)
    assert {node.attrs["dtype"] for node in graph.nodes if node.op == "cast"} >= {
        {"bfloat16": "bf16", "float16": "f16"}[dtype]
    }
    np.testing.assert_allclose(outputs(model, x), model(x), rtol=2e-2, atol=2e-2)
    assert all(array.dtype == np.float32 for array in compiled.tuned())


def test_weights_of_16_bits_are_refused() -> None:
    model = keras.Sequential([keras.Input((6,)), layers.Dense(3, dtype="bfloat16")])

    with pytest.raises(ImportModelError, match=r"weights of bfloat16 .*policy mixed_bfloat16"):
        from_tensorflow(model, (random(2, 6),))


@pytest.mark.parametrize("start", [-3, 0, 1, 9])
def test_slices_are_updated_at_starts_from_data(start: int) -> None:
    def update(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        return keras.ops.slice_update(x, (i[0], 2), 2 * x[:2, :2])

    check_forward(update, random(4, 6), np.array([start], np.int32))


def test_inputs_of_bytes_train_as_in_keras() -> None:
    model = keras.Sequential(
        [
            keras.Input((6, 6, 3), batch_size=2, dtype="uint8"),
            layers.Rescaling(1 / 127.5, -1.0),
            layers.Conv2D(4, 3),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )
    x = np.random.default_rng(0).integers(256, size=(2, 6, 6, 3)).astype(np.uint8)

    compiled = pockengine.compile(model, (x,), loss="mse", check=True)

    assert compiled.graph.inputs[0].dtype.numpy == np.uint8
