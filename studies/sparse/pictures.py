"""Picture data sets as tasks: CIFAR-10 (JPEG bytes) and Fashion-MNIST, at any resolution.

A task has a random, seeded share of pictures of each class. Test pictures come from the data set's
own test part. If a model was pretrained on the training part, all others do as well: accuracy on
pictures seen in pretraining does not estimate accuracy on new ones.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from pockengine.errors import FinetuneError
from pockengine.finetune.task import Examples, Task, split
from pockengine.studies.sparse.sizes import Sizes

CLASSES = 10
# The normalization of the ResNets in weights/resnet_cifar10; the others take pixels from -1 to 1.
IMAGENET_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
IMAGENET_SPREAD = np.array([0.229, 0.224, 0.225], np.float32)

Read = Callable[[int], Image.Image]
TRAIN, TEST = 0, 1


@dataclass(frozen=True)
class Part:
    """One part of a data set: labels i64 [N], and a function that reads one picture."""

    labels: np.ndarray
    read: Read


def picture_task(
    root: Path, name: str, resolution: int, norm: str, sizes: Sizes, seen: bool = False
) -> Task:
    """Return `cifar10` or `fashion_mnist`: inputs `x` f32 [N, 3, resolution, resolution].

    `norm` is "symmetric", "imagenet" or "bytes" (from 0 to 255); `seen` is whether the model was
    pretrained on the training file. FinetuneError names a missing or damaged file.
    """
    part, index = _tuning(root, name, sizes, seen)
    tuning = _examples(part, index[: sizes.train + sizes.validation], resolution, norm)
    part = _part(root, name, TEST)
    test = _examples(part, stratified(part.labels, sizes.test, sizes.seed), resolution, norm)
    return Task(name, CLASSES, split(tuning, sizes.validation, sizes.seed), test)


def more_pictures(
    root: Path, name: str, resolution: int, norm: str, sizes: Sizes, seen: bool = False
) -> Examples:
    """Return `sizes.more` pictures for choices, which are in no part of the task."""
    part, index = _tuning(root, name, sizes, seen)
    return _examples(part, index[sizes.train + sizes.validation :], resolution, norm)


def _tuning(root: Path, name: str, sizes: Sizes, seen: bool) -> tuple[Part, np.ndarray]:
    """Return the source of all but the test pictures, and their indices."""
    part = _part(root, name, TEST if seen else TRAIN)
    tested = sizes.test if seen else 0
    count = tested + sizes.train + sizes.validation + sizes.more
    return part, stratified(part.labels, count, sizes.seed)[tested:]


def _part(root: Path, name: str, place: int) -> Part:
    read, *files = SETS[name]
    return read(root / files[place])


def _examples(part: Part, index: np.ndarray, resolution: int, norm: str) -> Examples:
    images = np.stack([_pixels(part.read(int(i)), resolution) for i in index])
    return Examples({"x": _normalized(images, norm)}, part.labels[index])


def stratified(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return `count` shuffled indices with each label's share; FinetuneError if too few."""
    if count > len(labels):
        raise FinetuneError(f"{count} examples were asked for; the data set has {len(labels)}")
    mixed = np.random.default_rng([seed, len(labels)]).permutation(len(labels))
    turn = np.empty(len(labels))
    for label in np.unique(labels):
        places = np.flatnonzero(labels[mixed] == label)
        turn[places] = (np.arange(len(places)) + 0.5) / len(places)
    return np.asarray(mixed[np.argsort(turn, kind="stable")[:count]])


def _pixels(picture: Image.Image, resolution: int) -> np.ndarray:
    """Return a picture as bytes [3, resolution, resolution]."""
    size = (resolution, resolution)
    scaled = picture.convert("RGB").resize(size, Image.Resampling.BILINEAR)
    return np.asarray(scaled, np.uint8).transpose(2, 0, 1)


def _normalized(images: np.ndarray, norm: str) -> np.ndarray:
    if norm == "bytes":
        return images.astype(np.float32)
    if norm == "symmetric":
        return images.astype(np.float32) / np.float32(127.5) - np.float32(1)
    scaled = images.astype(np.float32) / np.float32(255)
    mean, spread = (each.reshape(3, 1, 1) for each in (IMAGENET_MEAN, IMAGENET_SPREAD))
    return np.asarray((scaled - mean) / spread)


def _cifar10(path: Path) -> Part:
    arrays = _arrays(path, "jpeg", "offset", "label")
    jpeg, offset = arrays["jpeg"], arrays["offset"].astype(np.int64)

    def read(index: int) -> Image.Image:
        try:
            return Image.open(io.BytesIO(jpeg[offset[index] : offset[index + 1]].tobytes()))
        except (UnidentifiedImageError, IndexError) as error:
            raise FinetuneError(f"{path}: picture {index} is no JPEG: {error}") from error

    return Part(arrays["label"].astype(np.int64), read)


def _fashion_mnist(path: Path) -> Part:
    arrays = _arrays(path, "image", "label")
    images = arrays["image"].reshape(-1, 28, 28)
    return Part(arrays["label"].astype(np.int64), lambda index: Image.fromarray(images[index]))


def _arrays(path: Path, *names: str) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in names}
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise FinetuneError(f"{path} cannot be read: {error}") from error


SETS: dict[str, tuple[Callable[[Path], Part], str, str]] = {
    "cifar10": (
        _cifar10,
        "vision/cifar10/cifar10_train20k_jpeg.npz",
        "vision/cifar10/cifar10_test_jpeg.npz",
    ),
    "fashion_mnist": (
        _fashion_mnist,
        "vision/fashion_mnist/fashion_mnist_train.npz",
        "vision/fashion_mnist/fashion_mnist_test.npz",
    ),
}
"""Data set -> reader of its files, training file, test file."""
