"""Tests use the same random numbers in every run: pytest's runner seeds the generators."""

import os
import random
import zlib

import numpy as np
import pytest


@pytest.mark.skipif(
    "TEST_SRCDIR" not in os.environ, reason="only Bazel's runner seeds the generators"
)
@pytest.mark.parametrize("place", ["first", "second"])
def test_numbers_are_seeded_by_the_test_name(place: str, request: pytest.FixtureRequest) -> None:
    seed = zlib.crc32(request.node.name.encode())
    assert place in request.node.name
    assert random.random() == random.Random(seed).random()
    assert np.random.random() == np.random.RandomState(seed).random()
