"""The digits example on this machine, with a few steps: it learns, and sparse needs less memory."""

import numpy as np

from pockengine.examples.digits import SCHEMES, pretrain, show, split_digits, tune
from pockengine.farm.boards.board import board_for, load_boards
from pockengine.farm.boards.connect import connect


def test_schemes_learn_new_digits() -> None:
    model = pretrain(epochs=2)
    with connect(board_for("host", load_boards())) as board:
        full, bias, sparse = (tune(board, model, "host", scheme, 30) for scheme in SCHEMES)
    assert full.after > full.before + 0.3
    assert sparse.after > sparse.before + 0.2
    assert bias.trained < sparse.trained < full.trained
    beyond = [each.arena_bytes - each.inference_bytes for each in (sparse, full)]
    assert sparse.arena_bytes < 0.65 * full.arena_bytes
    # Inference overwrites the residual that training saves.
    assert 0 <= beyond[0] < 0.2 * beyond[1]
    assert full.before == bias.before == sparse.before
    assert show([full, bias, sparse], "host", 30).row_count == 3


def test_training_and_test_pictures_are_disjoint() -> None:
    train, test = split_digits(new=True)
    assert train.images.shape[1:] == test.images.shape[1:] == (1, 8, 8)
    assert set(np.unique(test.labels)) == set(range(5))
    seen = {image.tobytes() for image in train.images.reshape(-1, 64)}
    repeated = sum(image.tobytes() in seen for image in test.images.reshape(-1, 64))
    assert repeated <= 1  # scikit-learn's set contains a few duplicates
