"""Follow the first page, and those that continue it, exactly as a reader would."""

import shutil
from pathlib import Path

import pytest

from pockengine.tests.docs.page import ALONE, LONG, METHODS, ROOT, WITH_BOARDS, blocks_of, follow

START = "docs/start.md"
CONTINUED = (
    "docs/howto/add-board.md",
    "docs/howto/data.md",
    "docs/howto/debug.md",
    "docs/howto/fit.md",
    "docs/howto/int8.md",
    "docs/howto/memory.md",
    "docs/howto/microcontroller.md",
    "docs/howto/models.md",
    "docs/howto/resume.md",
    "docs/howto/scheme.md",
    "docs/howto/tune.md",
)
"""Pages that start in the folder that `START` has produced."""
NOT_RUN = {"c", "rust", "swift", "toml"}
"""Languages whose blocks are excerpts unless they have a title."""

_started: list[Path] = []


def test_the_code_of_getting_started_runs(
    environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    follow(ROOT / START, Path.cwd(), environment)
    _started.append(tmp_path_factory.mktemp("started") / "desk")
    shutil.copytree(Path.cwd(), _started[0])


@pytest.mark.parametrize("page", CONTINUED)
def test_a_page_continues(page: str, warm_environment: dict[str, str]) -> None:
    if _started:
        shutil.copytree(_started[0], Path.cwd(), dirs_exist_ok=True)
    else:  # this test runs alone
        follow(ROOT / START, Path.cwd(), warm_environment)
    assert START.removeprefix("docs/") in (ROOT / page).read_text(), "say where the page begins"
    follow(ROOT / page, Path.cwd(), warm_environment)


def test_every_page_with_code_is_followed() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    running = {
        str(page.relative_to(ROOT))
        for page in pages
        if any(block.language not in NOT_RUN or block.title for block in blocks_of(page))
    }
    assert running == {*ALONE, *CONTINUED, *LONG, *METHODS, *WITH_BOARDS, START}
