"""Limits of control groups, read from files with Linux's format."""

from pathlib import Path

import pytest

from pockengine.farm import limits, load

GIB = 1 << 30


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The innermost of two groups; neither has a limit yet."""
    (tmp_path / "own").write_text("4:memory:/of/version/1\n0::/outer/inner\n")
    monkeypatch.setattr(limits, "OWN", tmp_path / "own")
    monkeypatch.setattr(limits, "ROOT", tmp_path / "root")
    inner = tmp_path / "root/outer/inner"
    inner.mkdir(parents=True)
    write(inner, "max 100000", "max")
    return inner


def write(folder: Path, cpu: str, memory: str, used: int = 0, cached: int = 0) -> None:
    (folder / "cpu.max").write_text(f"{cpu}\n")
    (folder / "memory.max").write_text(f"{memory}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon {used - cached}\ninactive_file {cached}\n")


def test_groups_without_limits_grant_everything(group: Path) -> None:
    assert limits.granted_cores() is None
    assert limits.granted_bytes() is None


def test_the_tightest_group_counts(group: Path) -> None:
    write(group, "400000 100000", str(8 * GIB))
    write(group.parent, "150000 100000", str(4 * GIB), used=3 * GIB, cached=GIB)

    assert limits.granted_cores() == 1.5
    assert limits.granted_bytes() == 2 * GIB


def test_a_full_group_grants_nothing(group: Path) -> None:
    write(group, "max 100000", str(GIB), used=GIB + 4096)

    assert limits.granted_bytes() == 0


def test_a_system_without_groups_has_no_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OWN", tmp_path / "absent")

    assert limits.granted_cores() is None
    assert limits.granted_bytes() is None


def test_free_memory_is_at_most_what_the_group_grants(
    group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "MEMORY", tmp_path / "meminfo")
    load.MEMORY.write_text(f"MemTotal: {64 << 20} kB\nMemAvailable: {32 << 20} kB\n")
    assert load.free_bytes() == 32 * GIB

    write(group, "max 100000", str(8 * GIB), used=GIB)
    assert load.free_bytes() == 7 * GIB
