import sys

import numpy as np
import pytest

from pockengine.errors import FarmError
from pockengine.farm.bench.photos import photo_batches


def test_batches_have_the_shape_and_types_of_a_job() -> None:
    photos = photo_batches(steps=3, batch=4, size=32)

    assert photos.images.shape == (3, 4, 3, 32, 32)
    assert photos.images.dtype == np.float32
    assert photos.labels.dtype == np.int64
    assert photos.images.flags.c_contiguous
    assert "sklearn" not in sys.modules  # its import takes longer than all others


def test_every_batch_has_both_photographs_equally() -> None:
    labels = photo_batches(steps=5, batch=4, size=16).labels

    assert (labels.sum(axis=1) == 2).all()


def test_crops_depend_on_the_seed() -> None:
    first, again, other = (photo_batches(2, 2, 16, seed).images for seed in (0, 0, 1))

    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_crops_have_the_brightness_of_photographs() -> None:
    images = photo_batches(steps=4, batch=8, size=64).images

    assert -2.2 < images.min() < images.max() < 2.7
    assert images.std() > 0.5


def test_crops_larger_than_the_photographs_are_refused() -> None:
    with pytest.raises(FarmError, match="427 pixels high; 500 is too large"):
        photo_batches(1, 2, 500)
