"""The page of stored records is self-contained, and escapes the records' text."""

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
from pockengine.farm.report.records_plots import unbeaten
from pockengine.farm.results.results import Results, write_lines
from pockengine.tests.farm.helpers import record

COMMITS = ["ccc", "bbb", "aaa"]  # newest first


class Page(HTMLParser):
    """Collect table cells, and the URLs that the page would fetch."""

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
        value=value,
        min=value,
        max=value,
        **{"unit": "instructions", **changes},
    )


def test_newest_figures_have_tables_and_charts() -> None:
    records = [counted("full", "aaa", 70.0), counted("full", "bbb", 69.0)]
    page = Page(records_page([*records, counted("sparse", "bbb", 28.0)], COMMITS))

    assert {"69 instructions", "28 instructions"} <= set(page.cells)
    assert "70 instructions" not in page.cells
    pictures = [source for source in page.sources if not source.startswith("#")]
    assert len(pictures) == 2  # bars of two schemes, a line over two commits
    for picture in pictures:
        svg = base64.b64decode(picture.removeprefix("data:image/svg+xml;base64,"))
        assert ElementTree.fromstring(svg).tag.endswith("svg")


def captions(text: str) -> list[str]:
    return re.findall("<figcaption>(.*?)</figcaption>", text)


def texts_of(page: str, title: str) -> str:
    """Return the texts of a titled chart, from the comments that matplotlib writes into SVG."""
    found = re.search(rf'{re.escape(title)}</figcaption><img src="[^,]*,([^"]*)"', page)
    assert found is not None
    return " ".join(re.findall("<!-- (.*?) -->", base64.b64decode(found[1]).decode()))


def test_memory_chart_shows_live_bytes_at_each_kernel() -> None:
    live = {"metric": "arena_bound_bytes", "unit": "bytes", "value": 300, "min": 100, "max": 300}
    records = [record(scheme=scheme, samples=(100, 300, 200), **live) for scheme in "ab"]

    text = records_page(records, COMMITS)

    assert captions(text) == ["bytes of the arena in use over a step"]
    words = texts_of(text, "bytes of the arena in use over a step")
    assert "a: at most 300.000 B, 3 kernels" in words
    assert not captions(records_page([record(**live)], COMMITS))


def test_accuracy_is_plotted_over_memory_of_the_same_scheme() -> None:
    records = []
    for scheme, accuracy, size in (("full", 0.9, 9e6), ("sparse", 0.8, 2e6), ("other", 0.7, 3e6)):
        for metric, value in (("accuracy", accuracy), ("arena_bytes", size)):
            place = {"scheme": scheme, "metric": metric, "min": value, "max": value}
            records.append(record(value=value, dataset="cifar10", **place))
    for metric, value in (("accuracy", 0.6), ("arena_bytes", 1e6)):
        place = {"metric": metric, "min": value, "max": value, "dtype": "int8"}
        records.append(record(value=value, dataset="cifar10", scheme="full", **place))
        records.append(record(value=value, dataset="cifar10", scheme="full", **place, seq_len=8))
    records.append(record(scheme="alone", metric="accuracy", value=1, min=1, max=1))

    text = records_page(records, COMMITS)

    assert "accuracy over arena_bytes" in captions(text)
    words = texts_of(text, "accuracy over arena_bytes")
    assert "sparse: 0.800, 2.000 MB" in words
    assert "full: 0.900, 9.000 MB" in words
    assert "full, int8: 0.600, 1.000 MB" in words
    assert "alone" not in words
    assert "mobilenet_v2, batch 4, cifar10, on rpi4 (rpi4-qemu), emulated" in text


def test_front_has_no_dominated_point() -> None:
    points = [(9.0, 0.9), (2.0, 0.8), (3.0, 0.7), (2.0, 0.6), (10.0, 0.9)]

    assert unbeaten(points) == [(2.0, 0.8), (9.0, 0.9)]


def test_commits_are_in_git_order() -> None:
    when = "2026-01-0{}T00:00:00+00:00"
    records = [
        counted("full", commit, 1.0, time=when.format(day))
        for commit, day in (("ccc", 1), ("aaa", 2), ("bbb", 3), ("elsewhere", 4))
    ]

    words = texts_of(records_page(records, COMMITS), "guest_instructions over the commits")

    assert re.findall("aaa|bbb|ccc|elsewhere", words) == ["aaa", "bbb", "ccc"]


def test_record_text_is_escaped() -> None:
    hostile = "<script>alert(1)</script>$x_$"
    text = records_page([counted(hostile, "aaa", 1.0), counted("b", "aaa", 2.0)], COMMITS)

    assert hostile in Page(text).cells
    assert len(re.findall("<script>", text)) == 1
    odd = [counted("a\x01b", commit, 1.0, unit=r"$\foo$") for commit in ("aaa", "bbb")]
    pictures = re.findall(r"data:image/svg\+xml;base64,([^\"]+)", records_page(odd, COMMITS))
    assert pictures
    for picture in pictures:
        ElementTree.fromstring(base64.b64decode(picture))


def test_failed_figures_are_marked_and_not_plotted() -> None:
    text = records_page([counted("a", "aaa", 1.0, ok=False), counted("b", "bbb", 2.0)], COMMITS)

    assert "1 instructions FAILED" in Page(text).cells
    assert "data:image" not in text


def test_error_without_records_names_the_command() -> None:
    with pytest.raises(FarmError, match="`pockengine bench` stores some"):
        records_page([], COMMITS)


def test_command_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/results.sqlite"
    results = Results(url)
    results.append([counted("full", "aaa", 70.0)])
    results.close()
    monkeypatch.setattr(command, "commits_to", lambda revision: COMMITS)
    out = tmp_path / "page.html"

    done = CliRunner().invoke(command.report, ["--database", url, "--out", str(out)])

    assert done.exit_code == 0, done.output
    assert "70 instructions" in out.read_text()


def test_command_reads_record_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "commits_to", lambda revision: COMMITS)
    file, out = tmp_path / "records.jsonl", tmp_path / "page.html"
    write_lines([counted("full", "aaa", 70.0), counted("full", "aaa", 71.0, device="host")], file)
    arguments = ["--records", str(file), "--out", str(out), "--device", "rpi4"]

    done = CliRunner().invoke(command.report, arguments)
    file.write_text("no record\n")
    refused = CliRunner().invoke(command.report, arguments)

    assert done.exit_code == 0, done.output
    assert "70 instructions" in out.read_text()
    assert "71 instructions" not in out.read_text()
    assert refused.exit_code == 1
    assert "records.jsonl: cannot read its records: record: not JSON" in refused.output
