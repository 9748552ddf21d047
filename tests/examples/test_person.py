"""The person example: a microcontroller learns to recognize a person."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pockengine.devices import load_device
from pockengine.errors import FinetuneError
from pockengine.examples.person import (
    JUDGED,
    SIZE,
    compile_for,
    draw_views,
    read_pictures,
    show,
    teach,
    whole,
)
from pockengine.farm.boards.board import BUILT_IN, board_for, load_boards
from pockengine.farm.boards.connect import connect

DATA = Path(os.environ.get("POCKENGINE_DATA", ""))
DEVICE, NAMES = "stm32f746", ("person", "no_person", "cat", "bird", "sunflower")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Write three uniform RGB pictures of different brightness."""
    paths = [tmp_path / f"{level}.png" for level in (0, 128, 255)]
    for path, size in zip(paths, ((96, 96), (200, 150), (150, 200)), strict=True):
        level = int(path.stem)
        Image.new("RGB", size, (level, level, level)).save(path)
    return paths


def test_every_other_view_shows_the_person(files: list[Path]) -> None:
    views = draw_views(read_pictures(files), 8, seed=0)
    assert views.pictures.shape == (8, 3, SIZE, SIZE)
    assert views.labels.tolist() == [1, 0] * 4
    levels = views.pictures.mean(axis=(1, 2, 3))
    np.testing.assert_allclose(levels, [-1, 0, -1, 1, -1, 0, -1, 1], atol=0.01)


def test_views_depend_only_on_their_seed() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (96, 96, 3)).astype(np.uint8)
    pictures = [Image.fromarray(noise)] * 2
    first, again, other = (draw_views(pictures, 4, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.pictures, again.pictures)
    assert np.any(first.pictures != other.pictures)


def test_a_file_that_is_not_a_picture_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "text.bmp"
    path.write_text("no picture")
    with pytest.raises(FinetuneError, match=r"text\.bmp is no picture"):
        read_pictures([path])


@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="needs qemu-system-arm")
def test_the_board_learns_to_recognize_a_person(tmp_path: Path) -> None:
    weights = DATA / "weights/mcunet_int8/mcunet-5fps.npz"
    if not weights.is_file():
        pytest.skip("needs weights/mcunet_int8 and samples of POCKENGINE_DATA")
    pictures = read_pictures([DATA / f"samples/{name}.bmp" for name in NAMES])
    lessons = draw_views(pictures, 20, seed=0)
    compiled = compile_for(DEVICE, weights, lessons, tmp_path / "artifact")
    with connect(board_for(DEVICE, load_boards([BUILT_IN]))) as board:
        lesson = teach(board, compiled, pictures, lessons, tmp_path)
    device, firmware = load_device(DEVICE), lesson.run.firmware
    assert firmware.memory_bytes < device.memory_bytes
    assert firmware.flash_bytes < device.flash_bytes
    assert lesson.accuracy(after=False) < 0.8  # the head is random
    assert lesson.accuracy(after=True) > 0.9
    expected = whole(pictures).labels
    np.testing.assert_array_equal(lesson.people(after=True) > 0.5, expected)
    assert np.mean(lesson.run.losses[-5:]) < 0.5 * np.mean(lesson.run.losses[:5])
    table = show(lesson, NAMES, "a board")
    assert [table.row_count, len(lesson.expected)] == [len(NAMES) + 1, len(NAMES) + JUDGED]
