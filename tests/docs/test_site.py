"""The documentation builds as pages, no link of it leads nowhere, and the reference is complete."""

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

import pockengine
from pockengine import errors
from pockengine.cli.commands import ROWS

ROOT = Path(__file__).parents[2]
MOST_WORDS = 1500
REFERENCES = {"gpu", "limits", "measured", "onnx", "reference", "runner", "tflite", "headers"}
RECORDS = "results"
"""A folder that is no part of the site."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def text_of(site: Path, page: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", (site / page / "index.html").read_text()))


def test_pages_show_files_of_the_repository(site: Path) -> None:
    assert "pe_load_weights" in text_of(site, "headers")


def test_every_public_name_has_its_section(site: Path) -> None:
    page = (site / "reference" / "python" / "index.html").read_text()
    missing = [name for name in pockengine._PLACES if f'id="{name.lower()}"' not in page]
    assert missing == []
    assert "cross_entropy" in page
    assert 'id="compiledfit"' in page  # inherited from a base that is not public


def test_every_error_is_listed(site: Path) -> None:
    page = text_of(site, "reference/errors")
    assert [name for name in vars(errors) if name.endswith("Error") and name not in page] == []


def test_every_command_is_listed_with_its_options(site: Path) -> None:
    page = text_of(site, "reference/commands")
    assert [name for name in ROWS if f"pockengine {name}" not in page] == []
    for option in ("--memory-budget", "--checkpoint", "--frozen-weights", "--baseline"):
        assert option in page


def test_search_finds_pages(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text()
    assert "Keep a memory budget" in index


def test_pages_are_short() -> None:
    long = {
        str(page.relative_to(ROOT / "docs")): words
        for page in (ROOT / "docs").rglob("*.md")
        if page.relative_to(ROOT / "docs").parts[0].removesuffix(".md")
        not in {*REFERENCES, RECORDS}
        and (words := len(page.read_text().split())) > MOST_WORDS
    }
    assert long == {}
