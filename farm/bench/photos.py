"""Real photographs to train on: random crops of the two that come with scikit-learn.

The task is to tell whether a crop is of the temple (china.jpg) or of the flower (flower.jpg).
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pockengine.errors import FarmError

CLASSES = 2
NAMES = "china.jpg", "flower.jpg"
# ImageNet's statistics, as every model here was designed for.
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
SPREAD = np.array([0.229, 0.224, 0.225], np.float32)


@dataclass(frozen=True)
class Photos:
    """Batches: images [steps, N, 3, H, W] f32 and labels [steps, N] i64."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


def photo_batches(steps: int, batch: int, size: int, seed: int = 0) -> Photos:
    """Cut `steps` batches of square crops, as many of each photograph as of the other.

    The same seed gives the same crops.
    FarmError when scikit-learn or Pillow is missing, or a photograph is smaller than the crops.
    """
    photos = _load()
    smallest = min(min(photo.shape[:2]) for photo in photos)
    if size > smallest:
        raise FarmError(f"the photographs are {smallest} pixels high; {size} is too large a crop")
    random = np.random.default_rng(seed)
    even = np.arange(batch) % len(photos)
    labels = np.stack([random.permutation(even) for _ in range(steps)])
    crops = [_crop(photos[label], size, random) for label in labels.flat]
    # Stacking preserves the crops' strides, which some array readers ignore.
    images = np.ascontiguousarray(np.stack(crops)).reshape(steps, batch, 3, size, size)
    return Photos(images, labels.astype(np.int64))


def _crop(photo: NDArray[np.uint8], size: int, random: np.random.Generator) -> NDArray[np.float32]:
    """Cut a crop of [H, W, 3] bytes at a random place; return it normalized, [3, size, size]."""
    top, left = (int(random.integers(0, extent - size + 1)) for extent in photo.shape[:2])
    crop = photo[top : top + size, left : left + size].astype(np.float32) / 255
    normalized: NDArray[np.float32] = ((crop - MEAN) / SPREAD).astype(np.float32)
    return normalized.transpose(2, 0, 1)


def _load() -> list[NDArray[np.uint8]]:
    """Read the two photographs from where scikit-learn lies, which takes seconds to import."""
    found = find_spec("sklearn")
    if found is None or found.origin is None:
        raise _missing("No module named 'sklearn'")
    try:
        from PIL import Image
    except ImportError as error:
        raise _missing(str(error)) from error
    photos = []
    for name in NAMES:
        with Image.open(Path(found.origin).parent / "datasets" / "images" / name) as image:
            photos.append(np.asarray(image, np.uint8))
    return photos


def _missing(fact: str) -> FarmError:
    return FarmError(
        f"the photographs need scikit-learn and Pillow: {fact}; pip install scikit-learn pillow"
    )
