"""Random flips and crops of training images, identical to the runner's (pe_data_augment.c).

augmentation = Augmentation(flip=True, crop=4) pictures = augmentation.applied(pictures, (1, 2),
seed=7, epoch=0, first=32) # [N, H, W, C]

The augmentation of an image depends only on the seed, the epoch and its position in the epoch, so a
resumed training sees the same images as an uninterrupted one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir.types import F32, TensorType
from pockengine.compiler.ops.random import mix, stream_key
from pockengine.errors import RuntimeFailure

STREAM = 6
"""Random stream of an epoch's augmentation; the row order uses the streams below."""

CHANNELS = (1, 3)
"""Supported channel counts of an image."""


@dataclass(frozen=True)
class Augmentation:
    """`flip` mirrors half of the images, `crop` shifts each by up to that many pixels each way.

    A crop is a window of the image's size in the image padded by `crop` zeros.
    """

    flip: bool = False
    crop: int = 0

    def __post_init__(self) -> None:
        if self.crop < 0:
            raise RuntimeFailure(f"a crop of {self.crop} pixels; give 0 or more")

    def applied(
        self, pictures: np.ndarray, axes: tuple[int, int], seed: int, epoch: int, first: int
    ) -> np.ndarray:
        """Return the augmented images [N, ...] from position `first` of an epoch.

        `axes` are those of the height and the width.
        """
        key = stream_key(int(stream_key(seed, epoch)), STREAM)
        places = np.arange(first, first + len(pictures), dtype=np.uint64)
        with np.errstate(over="ignore"):
            numbers = (places[:, None] * 3 + np.arange(3, dtype=np.uint64)).astype(np.uint32)
            bits = (mix(mix(numbers) + key) >> 8).astype(np.int64)
        mirrored = (bits[:, 0] >> 23).astype(bool) & self.flip
        offsets = bits[:, 1:] * (2 * self.crop + 1) >> 24
        height, width = (axis - 1 for axis in axes)
        result = np.empty_like(pictures)
        for new, old, mirror, (down, right) in zip(
            result, pictures, mirrored, offsets.tolist(), strict=True
        ):
            window = _window(old, (height, width), (down, right), self.crop)
            new[...] = np.flip(window, width) if mirror else window
        return result


AS_THEY_ARE = Augmentation()
"""No flips and no crops."""


def _window(
    picture: np.ndarray, axes: tuple[int, int], offsets: tuple[int, int], around: int
) -> np.ndarray:
    if not around:
        return picture
    widths = [(around, around) if axis in axes else (0, 0) for axis in range(picture.ndim)]
    cut = [slice(None)] * picture.ndim
    for axis, offset in zip(axes, offsets, strict=True):
        cut[axis] = slice(offset, offset + picture.shape[axis])
    return np.pad(picture, widths)[tuple(cut)]


def picture_axes(type_: TensorType) -> tuple[int, int] | None:
    """Return the height and width axes of images [B, C, H, W] or [B, H, W, C]."""
    if type_.dtype is not F32 or type_.rank != 4:
        return None
    first, last = (type_.shape[axis] in CHANNELS for axis in (1, 3))
    return (2, 3) if first else (1, 2) if last else None


def find_pictures(
    inputs: Mapping[str, TensorType], names: Iterable[str], augmentation: Augmentation
) -> tuple[str, tuple[int, int]]:
    """Return the image input, and its height and width axes.

    RuntimeFailure if there is none, or if another input would need the same shift.
    """
    large = [name for name in names if inputs[name].rank > 2]
    found = [(name, axes) for name in large if (axes := picture_axes(inputs[name]))]
    if len(large) != 1 or not found:
        raise RuntimeFailure(
            "flip and crop are for one input of pictures, f32 [B, C, H, W] or [B, H, W, C] with 1 "
            f"or 3 channels, and no other of three dimensions; here {', '.join(large) or 'none'} "
            "has as many: augment where the data are made"
        )
    name, axes = found[0]
    if augmentation.crop >= min(inputs[name].shape[axis] for axis in axes):
        raise RuntimeFailure(
            f"a crop of {augmentation.crop} pixels may leave nothing of {name} {inputs[name]}; "
            "take a smaller one"
        )
    return name, axes
