"""Fixtures: the environment of a reader who follows a page, and one with a faster command."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pockengine.tests.docs.warm_command import warm_command


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Set up a home and a current folder, with the command on the path."""
    programs, desk = tmp_path / "bin", tmp_path / "desk"
    programs.mkdir()
    desk.mkdir()
    command = programs / "pockengine"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m pockengine.cli "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("XDG_DATA_HOME", str(desk / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(desk / "config"))
    monkeypatch.syspath_prepend(str(desk))
    monkeypatch.chdir(desk)
    yield dict(os.environ)
    for name, module in list(sys.modules.items()):  # other pages write their own net.py
        if str(getattr(module, "__file__", None)).startswith(str(desk)):
            del sys.modules[name]


@pytest.fixture(scope="session")
def client() -> Iterator[str]:
    """Start a process whose forks are commands; return the program that asks for one."""
    with warm_command() as text:
        yield text


@pytest.fixture
def warm_environment(environment: dict[str, str], client: str, tmp_path: Path) -> dict[str, str]:
    """Set up the same, but commands are forks of a process that has imported PyTorch."""
    program, command = tmp_path / "client.py", tmp_path / "bin" / "pockengine"
    program.write_text(client)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {program} "$@"\n')
    return environment
