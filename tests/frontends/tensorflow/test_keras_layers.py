"""Layers of Keras beside its own results: volumes, sorting, noise, and augmentation."""

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


def test_numbers_are_sorted_into_bins() -> None:
    model = keras.Sequential([keras.Input((6,)), layers.Discretization([-0.5, 0.0, 1.0])])
    x = random(2, 6)

    np.testing.assert_array_equal(outputs(model, x), model(x))


NOISE: dict[str, tuple[Callable[[], keras.layers.Layer], float]] = {
    "GaussianNoise": (lambda: layers.GaussianNoise(0.3), 0.3),
    "GaussianDropout": (lambda: layers.GaussianDropout(0.2), 0.5),
}


@pytest.mark.parametrize("name", NOISE)
def test_noise_has_its_size_in_training_and_is_absent_elsewhere(name: str) -> None:
    layer, deviation = NOISE[name]
    model, x = keras.Sequential([keras.Input((1000,)), layer()]), np.ones((2, 1000), np.float32)

    noisy = outputs(model, x, training=True)

    np.testing.assert_array_equal(outputs(model, x), x)
    assert noisy.mean() == pytest.approx(1, abs=0.05)
    assert noisy.std() == pytest.approx(deviation, rel=0.1)


AUGMENTATIONS: dict[str, Callable[[], keras.layers.Layer]] = {
    "brightness": lambda: layers.RandomBrightness(0.2),
    "contrast": lambda: layers.RandomContrast(0.5),
    "flip": lambda: layers.RandomFlip(),
    "hue": lambda: layers.RandomHue(0.3),
    "rotation": lambda: layers.RandomRotation(0.2),
    "saturation": lambda: layers.RandomSaturation(0.4),
    "shear": lambda: layers.RandomShear(0.2, 0.2),
    "translation": lambda: layers.RandomTranslation(0.3, 0.3, fill_mode="nearest"),
    "zoom": lambda: layers.RandomZoom((-0.4, -0.2)),
}


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_pictures_are_changed_in_training_alone(name: str) -> None:
    model = keras.Sequential([keras.Input((8, 8, 3), batch_size=2), AUGMENTATIONS[name]()])
    x = np.random.default_rng(0).uniform(0, 255, (2, 8, 8, 3)).astype(np.float32)

    changed = outputs(model, x, training=True)

    np.testing.assert_array_equal(outputs(model, x), x)
    assert (changed != x).any()
    assert changed.min() >= -1e-3
    assert changed.max() <= 255.001


def test_augmentation_of_another_distribution_is_refused() -> None:
    model = keras.Sequential([keras.Input((8, 8, 3), batch_size=2), layers.MixUp()])
    with pytest.raises(ImportModelError, match=r"StatelessRandomGammaV3.*neither uniform nor"):
        from_tensorflow(model, (random(2, 8, 8, 3),), training=True)


PROJECTIONS = np.array(
    [[0.9, 0.2, -0.7, -0.3, 1.1, 0.5, 0.0, 0.0], [1.2, 0, 2.5, 0, 0.7, -1.5, 0.02, 0.01]],
    np.float32,
)


@pytest.mark.parametrize("fill_mode", ["CONSTANT", "NEAREST", "REFLECT"])
@pytest.mark.parametrize("interpolation", ["BILINEAR", "NEAREST"])
def test_projections_equal_tensorflow(interpolation: str, fill_mode: str) -> None:
    def projected(x: tf.Tensor, transforms: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.ImageProjectiveTransformV3(
            images=x,
            transforms=transforms,
            output_shape=[5, 7],
            fill_value=0.5,
            interpolation=interpolation,
            fill_mode=fill_mode,
        )

    x = random(2, 6, 5, 3)
    graph = from_tensorflow(projected, {"x": x, "transforms": PROJECTIONS})
    found = next(iter(run(graph, {"x": x, "transforms": PROJECTIONS}).values()))

    np.testing.assert_allclose(found, projected(x, PROJECTIONS), rtol=1e-4, atol=1e-5)


def test_colours_equal_tensorflow() -> None:
    x = np.random.default_rng(0).uniform(0, 1, (2, 4, 4, 3)).astype(np.float32)
    x[0, 0] = [[0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.2], [0.2, 0.7, 0.7]]
    for function in (tf.image.rgb_to_hsv, tf.image.hsv_to_rgb):
        graph = from_tensorflow(lambda x, function=function: function(x), {"x": x})
        found = next(iter(run(graph, {"x": x}).values()))
        np.testing.assert_allclose(found, function(x), rtol=1e-4, atol=1e-6)
