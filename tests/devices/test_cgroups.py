"""Limits of control groups, read from files with Linux's format."""

import os
from pathlib import Path

import pytest

from pockengine.devices import cgroups, host

GIB = 1 << 30


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The innermost of two groups; neither has a limit yet."""
    (tmp_path / "own").write_text("4:memory:/of/version/1\n0::/outer/inner\n")
    monkeypatch.setattr(cgroups, "OWN", tmp_path / "own")
    monkeypatch.setattr(cgroups, "ROOT", tmp_path / "root")
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
    assert cgroups.granted_cores() is None
    assert cgroups.granted_bytes() is None


def test_the_tightest_group_counts(group: Path) -> None:
    write(group, "400000 100000", str(8 * GIB))
    write(group.parent, "150000 100000", str(4 * GIB), used=3 * GIB, cached=GIB)

    assert cgroups.granted_cores() == 1.5
    assert cgroups.granted_bytes() == 2 * GIB


def test_a_full_group_grants_nothing(group: Path) -> None:
    write(group, "max 100000", str(GIB), used=GIB + 4096)

    assert cgroups.granted_bytes() == 0


def test_a_system_without_groups_has_no_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "OWN", tmp_path / "absent")

    assert cgroups.granted_cores() is None
    assert cgroups.granted_bytes() is None


def test_cores_of_a_container_are_its_share_of_time(
    group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    assert host.detect_cores() == 64

    write(group, "250000 100000", "max")
    assert host.detect_cores() == 2

    write(group, "50000 100000", "max")
    assert host.detect_cores() == 1


def test_memory_of_a_container_is_its_limit(group: Path) -> None:
    assert cgroups.memory_limit() is None
    machine = host.detect_memory()

    write(group, "max 100000", str(GIB), used=GIB // 2)
    assert host.detect_memory() == GIB < machine
