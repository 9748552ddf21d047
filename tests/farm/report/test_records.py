"""The page of stored records: whole in itself, and what records hold is only text on it."""

import base64
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from pockengine.errors import FarmError
from pockengine.farm.cli import report as command
from pockengine.farm.report.records import records_page
from pockengine.farm.results.results import Results
from pockengine.tests.farm.helpers import record

COMMITS = ["ccc", "bbb", "aaa"]  # newest first


class Page(HTMLParser):
    """Collects the cells of tables, and what the page would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.sources: list[str] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._in_cell = tag == "td"
        if tag == "td":
            self.cells.append("")
        self.sources += [value or "" for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.cells[-1] += data


def counted(scheme: str, commit: str, value: float, **changes: object) -> object:
    return record(
        scheme=scheme,
        commit=commit,
        metric="guest_instructions",
        unit="instructions",
        value=value,
        min=value,
        max=value,
        **changes,
    )


def test_newest_figures_stand_in_tables_with_pictures_of_their_own() -> None:
    records = [counted("full", "aaa", 70.0), counted("full", "bbb", 69.0)]
    page = Page(records_page([*records, counted("sparse", "bbb", 28.0)], COMMITS))

    assert {"69 instructions", "28 instructions"} <= set(page.cells)
    assert "70 instructions" not in page.cells
    pictures = [source for source in page.sources if not source.startswith("#")]
    assert len(pictures) == 2  # bars of two schemes, a line over two commits
    for picture in pictures:
        svg = base64.b64decode(picture.removeprefix("data:image/svg+xml;base64,"))
        assert ElementTree.fromstring(svg).tag.endswith("svg")


def test_what_a_record_says_is_text() -> None:
    hostile = "<script>alert(1)</script>$x_$"
    text = records_page([counted(hostile, "aaa", 1.0), counted("b", "aaa", 2.0)], COMMITS)

    assert hostile in Page(text).cells
    assert len(re.findall("<script>", text)) == 1


def test_a_failed_figure_is_marked_and_not_drawn() -> None:
    text = records_page([counted("a", "aaa", 1.0, ok=False), counted("b", "bbb", 2.0)], COMMITS)

    assert "1 instructions FAILED" in Page(text).cells
    assert "data:image" not in text


def test_without_records_the_error_says_what_stores_some() -> None:
    with pytest.raises(FarmError, match="`pockengine bench` stores some"):
        records_page([], COMMITS)


def test_the_command_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/results.sqlite"
    results = Results(url)
    results.append([counted("full", "aaa", 70.0)])  # type: ignore[list-item]
    results.close()
    monkeypatch.setattr(command, "commits_to", lambda revision: COMMITS)
    out = tmp_path / "page.html"

    done = CliRunner().invoke(command.report, ["--database", url, "--out", str(out)])

    assert done.exit_code == 0, done.output
    assert "70 instructions" in out.read_text()
