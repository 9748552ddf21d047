"""A fixture: the environment of a reader who follows a page."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


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
