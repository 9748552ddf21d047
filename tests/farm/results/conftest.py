"""A repository of eight commits and a database, for tests of comparisons."""

from pathlib import Path

import pytest

from pockengine.farm.results.commits import SHORT
from pockengine.tests.farm.results.repository import git


@pytest.fixture(name="commits")
def a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make eight commits on main; return them, oldest first."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    found = []
    for i in range(8):
        git(folder, "commit", "-q", "--allow-empty", "-m", str(i))
        found.append(git(folder, "rev-parse", "HEAD")[:SHORT])
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(folder))
    return found


@pytest.fixture(name="url")
def a_database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/results.sqlite"
