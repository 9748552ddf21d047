"""The pages' figures equal the records, and pages stay short."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from click.core import ParameterSource

from pockengine.errors import FarmError
from pockengine.farm.boards.board import BUILT_IN, board_for, load_boards
from pockengine.farm.cli.bench import main
from pockengine.farm.cli.bench_options import check_options
from pockengine.tests.docs.figure_pages import PEERS
from pockengine.tests.docs.figure_table import UNITS
from pockengine.tests.docs.figures import files
from pockengine.tests.docs.marks import render, stale
from pockengine.tests.docs.records import RESULTS, ROOT, read_figure, read_figures

MOST_WORDS = 2000
GENERATED = "python -m pockengine.tests.docs.figures"


def test_pages_and_charts_show_the_records() -> None:
    assert stale(files()) == [], f"run {GENERATED}"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.jsonl")), ids=lambda path: path.name)
def test_every_record_has_its_commit_time_cpu_and_command(path: Path) -> None:
    for figure in read_figures(path):
        assert figure.cpu
        assert figure.command
        assert re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", figure.record.commit)


def test_the_bench_accepts_the_options_of_recorded_commands() -> None:
    figures = [figure for path in RESULTS.glob("*.jsonl") for figure in read_figures(path)]
    boards = load_boards([BUILT_IN])
    for command in {figure.command for figure in figures if "//farm:bench -- " in figure.command}:
        words = shlex.split(command.partition(" -- ")[2].replace("TYPE", "f32"))
        context = main.make_context("bench", words)
        source = context.get_parameter_source
        named = {name for name in context.params if source(name) is ParameterSource.COMMANDLINE}
        board = board_for(context.params["device"], boards)
        check_options(dict.fromkeys(named), context.params["suite"], [board])


def test_a_record_without_its_cpu_is_refused() -> None:
    line = (RESULTS / "peers.jsonl").read_text().splitlines()[0]
    values = json.loads(line)
    del values["cpu"]
    with pytest.raises(FarmError, match="needs cpu and command"):
        read_figure(json.dumps(values))


def test_another_record_changes_the_table(tmp_path: Path) -> None:
    records = [json.loads(line) for line in (RESULTS / PEERS.file).read_text().splitlines()]
    shown = {"metric": "step_ms", "engine": "pockengine", "scheme": "full"}
    first = next(record for record in records if shown.items() <= record.items())
    first.update({name: 2 * first[name] for name in ("value", "min", "max")})
    (tmp_path / PEERS.file).write_text("".join(json.dumps(record) + "\n" for record in records))

    before = PEERS.text().splitlines()
    after = replace(PEERS, folder=tmp_path).text().splitlines()

    assert [place for place, line in enumerate(before) if after[place] != line] == [2]
    assert f"| {UNITS['ms'](first['value'])} |" in after[2]
    ratios = [float(table[2].split("|")[5].strip(" x")) for table in (before, after)]
    assert ratios[1] == pytest.approx(ratios[0] / 2, rel=0.05)


def test_only_named_parts_are_rendered() -> None:
    page = "a\n<!-- generated: one -->\nold\n<!-- end -->\nb\n"
    assert render(page, str.upper) == "a\n<!-- generated: one -->\nONE<!-- end -->\nb\n"


def test_the_results_page_is_short() -> None:
    text = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")
    assert len(text.split()) <= MOST_WORDS
    cells = [cell.strip() for line in text.splitlines() for cell in line.split("|")[1:-1]]
    assert max(map(len, cells)) <= 120
