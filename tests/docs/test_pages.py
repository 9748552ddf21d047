"""Every page with code is followed as a reader would, word by word."""

import shutil
from pathlib import Path

import pytest

from pockengine.tests.docs.page import ROOT, WITH_BOARDS, blocks_of, follow

FOLLOWED = {
    "README.md": (),
    "docs/index.md": (),
    "docs/tutorials/app.md": (pytest.mark.skipif(not shutil.which("cmake"), reason="no cmake"),),
    "docs/tutorials/research.md": (),
    "docs/tutorials/search.md": (),
    "docs/usage.md": (),
}
NOT_RUN = {"c", "toml"}
"""Languages of blocks that are excerpts unless they have a title."""


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
    assert running == {*FOLLOWED, *WITH_BOARDS}
