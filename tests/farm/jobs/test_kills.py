from pathlib import Path

import pytest

from pockengine.tests.farm.jobs.kills import kill_holders, kill_recorders


@pytest.fixture(autouse=True)
def an_own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_records_that_were_stored_survive_the_kill_of_their_client(tmp_path: Path) -> None:
    assert kill_recorders(tmp_path, kills=25) == []


def test_a_board_is_free_after_the_kill_of_its_client(tmp_path: Path) -> None:
    assert kill_holders(tmp_path, kills=25) == []
