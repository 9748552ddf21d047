"""Killed or concurrent writers leave a complete artifact and a complete file."""

from pathlib import Path

from pockengine.tests.backends.c.artifact_kills import kill_savers, kill_writers, write_at_once


def test_a_kill_leaves_the_old_artifact_or_the_new_one(tmp_path: Path) -> None:
    count = kill_writers(tmp_path / "net", 20)
    assert count.killed == 20
    assert count.left <= 1  # the next writer cleans up


def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    assert kill_savers(tmp_path / "file", 30).left <= 1


def test_writers_at_once_all_succeed(tmp_path: Path) -> None:
    assert write_at_once(tmp_path / "net", 8) > 0
