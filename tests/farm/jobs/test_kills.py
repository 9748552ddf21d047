from pathlib import Path

import pytest

from pockengine.tests.farm.jobs.kills import kill_holders, kill_recorders


@pytest.fixture(autouse=True)
def temporary_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_stored_records_survive_a_killed_client(tmp_path: Path) -> None:
    assert kill_recorders(tmp_path, kills=25) == []


def test_boards_of_a_killed_client_are_free(tmp_path: Path) -> None:
    assert kill_holders(tmp_path, kills=25) == []
