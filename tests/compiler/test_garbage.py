"""The collector's settings during a compilation, and after it."""

import gc
from collections.abc import Iterator

import pytest

from pockengine.compiler.garbage import OBJECTS, rare_collections


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_collections_are_rare_inside_and_as_before_outside() -> None:
    @rare_collections()
    def compiled() -> None:
        with rare_collections():
            assert gc.get_threshold() == (OBJECTS, 10, 10)
        assert gc.get_threshold() == (OBJECTS, 10, 10)
        raise ValueError("stop")

    gc.set_threshold(700, 10, 10)
    with pytest.raises(ValueError, match="stop"):
        compiled()
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("youngest", [0, OBJECTS + 1])
def test_rarer_collections_stay(youngest: int) -> None:
    gc.set_threshold(youngest, 10, 10)
    with rare_collections():
        assert gc.get_threshold()[0] == youngest
