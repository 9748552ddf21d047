"""The federated example: Flower's server and strategy with two clients, one of them a board."""

from collections.abc import Iterator

import numpy as np
import pytest
from flwr.client import NumPyClient

from pockengine.compiled import Compiled
from pockengine.examples.digits import Digits, pretrain, split_digits
from pockengine.examples.federated.federated import (
    PARTS,
    RATE,
    compile_for,
    federate,
    judge_by,
    rows_of,
    show,
)
from pockengine.examples.federated.learners import BoardLearner, HostLearner, give, traveling
from pockengine.farm.boards.board import board_for, load_boards
from pockengine.farm.boards.connect import connect

CONFIG = {"round": 1, "steps": 4, "lr": RATE}


@pytest.fixture(scope="module")
def compiled() -> tuple[Compiled, Compiled]:
    """Return two equal artifacts, each with its own session."""
    model = pretrain(epochs=2)
    return compile_for(model, "host"), compile_for(model, "host")


@pytest.fixture(scope="module")
def digits() -> tuple[Digits, Digits]:
    return split_digits(new=True)


@pytest.fixture(scope="module")
def board(
    compiled: tuple[Compiled, Compiled], digits: tuple[Digits, Digits]
) -> Iterator[BoardLearner]:
    """A board's client; the farm connects to this machine as the board."""
    twin = compiled[1]
    with connect(board_for("host", load_boards())) as transport:
        rows = rows_of(digits[0], PARTS[1])
        yield BoardLearner(transport, twin.artifact, twin.trained, rows)


def test_a_round_on_a_board_equals_fit(
    compiled: tuple[Compiled, Compiled], digits: tuple[Digits, Digits], board: BoardLearner
) -> None:
    begin = [array + np.float32(0.01) for array in give(compiled[0].session())]
    on_host = HostLearner(compiled[0], rows_of(digits[0], PARTS[1]))
    ours, rows, report = on_host.fit(begin, CONFIG)
    theirs, their_rows, their_report = board.fit(begin, CONFIG)
    assert rows == their_rows > 0
    assert report["loss"] == pytest.approx(their_report["loss"])
    for one, other, before in zip(ours, theirs, begin, strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.any(one != before)


def test_only_trained_params_are_sent(compiled: tuple[Compiled, Compiled]) -> None:
    artifact = compiled[0].artifact
    names = traveling(artifact)
    assert "head.weight" in names
    assert "stem.0.weight" in artifact.params
    assert "stem.0.weight" not in names
    sizes = [array.nbytes for array in give(compiled[0].session())]
    whole = sum(spec.type.nbytes for spec in artifact.params.values() if spec.kind == "param")
    assert sum(sizes) < whole / 2


def test_flower_averages_the_clients_weights(
    compiled: tuple[Compiled, Compiled], digits: tuple[Digits, Digits], board: BoardLearner
) -> None:
    train, test = digits
    server = compiled[0]
    seen = []

    def judge(number, parameters, config):  # type: ignore[no-untyped-def]
        seen.append(parameters)
        return judge_by(server, test)(number, parameters, config)

    clients: dict[str, NumPyClient] = {
        "host": HostLearner(server, rows_of(train, PARTS[0])),
        "board": board,
    }
    first = give(server.trained)
    history = federate(clients, server, judge, rounds=2)
    accuracies = [value for _, value in history.metrics_centralized["accuracy"]]
    assert accuracies[2] > accuracies[0] + 0.1
    config = {**CONFIG, "steps": 20}
    found = [client.fit(first, config) for client in clients.values()]
    total = sum(rows for _, rows, _ in found)
    for place, averaged in enumerate(seen[1]):
        mean = sum(arrays[place] * (rows / total) for arrays, rows, _ in found)
        np.testing.assert_allclose(averaged, mean, rtol=1e-5, atol=1e-6)
    assert show(history, 1, 2).row_count == 3
