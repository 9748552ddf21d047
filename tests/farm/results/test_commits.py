"""Records carry the commit of the user's current repository."""

from pathlib import Path

import pytest

from pockengine.farm.results.commits import SHORT, checkout, current_commit
from pockengine.tests.farm.results.repository import git


def test_commit_is_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUILD_WORKSPACE_DIRECTORY", raising=False)
    below = tmp_path / "repository" / "below"
    below.mkdir(parents=True)
    git(below.parent, "init", "-q")
    (below / "scheme.toml").write_text("a = 1")
    git(below.parent, "add", ".")
    git(below.parent, "commit", "-q", "-m", "first")
    monkeypatch.chdir(below)
    head = git(below, "rev-parse", "HEAD")[:SHORT]
    assert current_commit() == head
    (below / "scheme.toml").write_text("a = 2")
    assert current_commit() == f"{head}-dirty"


def test_commit_outside_a_repository_is_of_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BUILD_WORKSPACE_DIRECTORY", raising=False)
    monkeypatch.chdir(tmp_path)
    assert checkout().name == "results"
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    assert checkout().name == "results"
