"""Every page with code is followed as a reader would, word by word."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from pockengine.tests.docs.page import blocks_of, follow
from pockengine.tests.farm.helpers import needs_qemu

ROOT = Path(__file__).parents[2]
FOLLOWED = {
    "README.md": (),
    "docs/index.md": (),
    "docs/jobs.md": (needs_qemu,),
    "docs/tutorials/app.md": (pytest.mark.skipif(not shutil.which("cmake"), reason="no cmake"),),
    "docs/tutorials/board.md": (needs_qemu,),
    "docs/tutorials/farm.md": (needs_qemu,),
    "docs/tutorials/research.md": (),
    "docs/tutorials/search.md": (),
    "docs/usage.md": (),
}
NOT_RUN = {"c", "toml"}
"""Languages of blocks that are excerpts unless they have a title."""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Someone's home and current folder, with the command on the path."""
    programs, desk = tmp_path / "bin", tmp_path / "desk"
    programs.mkdir()
    desk.mkdir()
    command = programs / "pockengine"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m pockengine.cli "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("XDG_DATA_HOME", str(desk / "data"))
    monkeypatch.syspath_prepend(str(desk))
    monkeypatch.chdir(desk)
    return dict(os.environ)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=marks, id=page) for page, marks in FOLLOWED.items()]
)
def test_a_page_does_what_it_says(page: str, environment: dict[str, str]) -> None:
    follow(ROOT / page, Path.cwd(), environment)


def test_every_page_with_code_is_followed() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    running = {
        str(page.relative_to(ROOT))
        for page in pages
        if any(block.language not in NOT_RUN or block.title for block in blocks_of(page))
    }
    assert running == set(FOLLOWED)
