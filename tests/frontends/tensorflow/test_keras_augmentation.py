"""Keras's augmentation layers: the range of their effects, and exact properties."""

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from pockengine.api import compile
from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.tensorflow import from_tensorflow

SEEDS = range(40)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def pictures(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).uniform(0, 255, shape).astype(np.float32)


def outputs(
    model: keras.Model, x: np.ndarray, *, training: bool = False, seed: int = 4
) -> np.ndarray:
    graph = from_tensorflow(model, (x,), training=training)
    feed = {"seed": np.asarray(seed, np.int32), **{v.name: x for v in graph.inputs[:1]}}
    found = run(graph, {value.name: feed[value.name] for value in graph.inputs})
    return next(iter(found.values()))


def drawn(model: keras.Model, x: np.ndarray) -> list[np.ndarray]:
    """Return the model's outputs in training mode, one for each of many seeds."""
    graph = from_tensorflow(model, (x,), training=True)
    name = next(value.name for value in graph.inputs if value.name != "seed")
    feeds = ({"seed": np.asarray(seed, np.int32), name: x} for seed in SEEDS)
    return [next(iter(run(graph, feed).values())) for feed in feeds]


AUGMENTATIONS: dict[str, Callable[[], keras.layers.Layer]] = {
    "brightness": lambda: layers.RandomBrightness(0.2),
    "contrast": lambda: layers.RandomContrast(0.5),
    "cut and mix": lambda: layers.CutMix(),
    "flip": lambda: layers.RandomFlip(),
    "hue": lambda: layers.RandomHue(0.3),
    "mix": lambda: layers.MixUp(),
    "posterization": lambda: layers.RandomPosterization(4),
    "random ones": lambda: layers.RandAugment(value_range=(0, 255)),
    "rotation": lambda: layers.RandomRotation(0.2),
    "saturation": lambda: layers.RandomSaturation(0.4),
    "shear": lambda: layers.RandomShear(0.2, 0.2),
    "translation": lambda: layers.RandomTranslation(0.3, 0.3, fill_mode="nearest"),
    "zoom": lambda: layers.RandomZoom((-0.4, -0.2)),
}


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_pictures_change_only_in_training(name: str) -> None:
    model = keras.Sequential([keras.Input((8, 8, 3), batch_size=2), AUGMENTATIONS[name]()])
    x = pictures(2, 8, 8, 3)

    changed = outputs(model, x, training=True)

    np.testing.assert_array_equal(outputs(model, x), x)
    assert (changed != x).any()
    assert changed.min() >= -1e-3
    assert changed.max() <= 255.001


def one_layer(x: np.ndarray, layer: keras.layers.Layer) -> keras.Model:
    return keras.Sequential([keras.Input(x.shape[1:], batch_size=len(x)), layer])


def test_crops_are_windows_and_every_window_is_drawn() -> None:
    x = pictures(1, 5, 4, 2)
    windows = {(r, c): x[:, r : r + 3, c : c + 3] for r in range(3) for c in range(2)}

    crops = drawn(one_layer(x, layers.RandomCrop(3, 3)), x)

    seen = {
        place for crop in crops for place, window in windows.items() if np.array_equal(crop, window)
    }
    assert seen == set(windows)
    assert all(any(np.array_equal(crop, w) for w in windows.values()) for crop in crops)


def test_mixed_pictures_lie_between_two_of_the_batch() -> None:
    x = np.eye(4, dtype=np.float32).reshape(4, 2, 2, 1)

    shares = np.concatenate(
        [mixed.reshape(4, 4) for mixed in drawn(one_layer(x, layers.MixUp(0.4)), x)]
    )

    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
    assert ((shares > 1e-6).sum(1) <= 2).all()
    own = np.tile(np.eye(4), (len(SEEDS), 1)) * shares
    mean, deviation = 0.625, 0.389  # a beta distribution; one in four is mixed with itself
    assert own.sum(1).mean() == pytest.approx(mean, abs=0.1)
    assert own.sum(1).std() == pytest.approx(deviation, abs=0.08)


class Mixed(keras.Model):
    """Mixes pictures and labels, passed as one mapping; returns its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = layers.MixUp(0.4)
        self.head = layers.Dense(3)

    def call(self, rows: dict[str, tf.Tensor], training: bool = False) -> dict[str, tf.Tensor]:
        mixed = self.mix(rows, training=training)
        logits = self.head(layers.Flatten()(mixed["images"]))
        loss = keras.losses.categorical_crossentropy(mixed["labels"], logits, from_logits=True)
        return {"loss": tf.reduce_mean(loss), **mixed}


def test_labels_are_mixed_like_their_pictures() -> None:
    eye = np.eye(3, dtype=np.float32)
    rows = {"images": eye.reshape(3, 3, 1, 1), "labels": eye}
    model = Mixed()
    model(rows)

    with compile(model, (rows,)).session() as session:
        found = [session.train_step(rows, lr=0.1) for _ in range(3)]

    for step in found:
        np.testing.assert_allclose(step["labels"], step["images"].reshape(3, 3), rtol=1e-5)
    assert not np.array_equal(found[0]["labels"], found[1]["labels"])


class Called(keras.Model):
    """Calls one layer: Keras cannot trace each of these layers outside a model."""

    def __init__(self, layer: keras.layers.Layer) -> None:
        super().__init__()
        self.layer = layer

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.layer(x, training=training)


EXACT: dict[str, Callable[[], keras.layers.Layer]] = {
    "equalization": lambda: layers.Equalization(),
    "equalization of 16 bins": lambda: layers.Equalization(bins=16),
    "automatic contrast": lambda: layers.AutoContrast(),
    "posterization": lambda: layers.RandomPosterization((3, 3)),
}


@pytest.mark.parametrize("name", EXACT)
def test_deterministic_layers_equal_keras(name: str) -> None:
    model, x = Called(EXACT[name]()), pictures(2, 8, 8, 3)

    np.testing.assert_allclose(
        outputs(model, x, training=True), model(x, training=True), rtol=1e-5, atol=1e-3
    )


def test_a_kernel_of_random_size_is_refused_by_name() -> None:
    x = pictures(2, 8, 8, 3)
    with pytest.raises(ImportModelError, match=r"Range in .*random_elastic.* shape of its result"):
        from_tensorflow(one_layer(x, layers.RandomElasticTransform()), (x,), training=True)


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


def test_colors_equal_tensorflow() -> None:
    x = np.random.default_rng(0).uniform(0, 1, (2, 4, 4, 3)).astype(np.float32)
    x[0, 0] = [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.5, 0.5, 0.2], [0.2, 0.7, 0.7]]
    for function in (tf.image.rgb_to_hsv, tf.image.hsv_to_rgb):
        graph = from_tensorflow(lambda x, function=function: function(x), {"x": x})
        found = next(iter(run(graph, {"x": x}).values()))
        np.testing.assert_allclose(found, function(x), rtol=1e-4, atol=1e-6)
