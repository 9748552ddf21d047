"""The gate and the trend in a real repository: the baseline, and commits that move figures."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from pockengine.errors import FarmError
from pockengine.farm.cli.main import cli
from pockengine.farm.results.commits import history
from pockengine.farm.results.gate import against, report
from pockengine.farm.results.results import Record, Results
from pockengine.farm.results.trend import trends
from pockengine.tests.farm.results.repository import count


def test_commits_come_newest_first(commits: list[str]) -> None:
    assert history("main") == commits[::-1]
    assert history("main~2") == commits[-3::-1]


@pytest.mark.parametrize("revision", ["nosuch", "--output=/tmp/x", ""])
def test_unknown_revisions_are_an_error(commits: list[str], revision: str) -> None:
    with pytest.raises(FarmError, match=r"git does not know|is no revision"):
        history(revision)


def test_error_outside_a_clone_asks_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pockengine.farm.results.commits.checkout", lambda: tmp_path)
    with pytest.raises(FarmError, match="run this in a clone of the repository"):
        history("HEAD")


def test_baseline_is_the_newest_measured_commit(commits: list[str], url: str) -> None:
    results = Results(url)
    results.append([count(commits[2], 100), count(commits[5], 90), count("elsewhere", 1)])
    results.append([count(f"{commits[6]}-dirty", 1)])

    (one,) = against([count("now", 95)], "main", results)

    assert one.baseline is not None
    assert (one.baseline.commit, one.change.value) == (commits[5], "worse")


def test_gate_without_records_explains_what_to_do(commits: list[str], url: str) -> None:
    with pytest.raises(FarmError, match=r"no stored record.*run the bench there first"):
        against([count("now", 95)], "main", Results(url))


def test_error_names_an_unmeasured_commit(commits: list[str], url: str) -> None:
    Results(url).append([count(commits[4], 90)])

    result = CliRunner().invoke(cli, ["compare", "--database", url])

    assert result.exit_code == 1
    assert f"no stored record of HEAD ({commits[7]}); run the bench there" in result.output


def test_error_names_a_device_without_records(commits: list[str], url: str) -> None:
    Results(url).append([count(commits[7], 90)])

    result = CliRunner().invoke(cli, ["compare", "--database", url, "--device", "rpi9"])

    assert result.exit_code == 1
    assert "no stored record of device rpi9; `results` lists" in result.output


def test_files_and_status_for_continuous_integration(
    commits: list[str], url: str, tmp_path: Path
) -> None:
    results = Results(url)
    results.append([count(commits[5], 90)])
    console = Console(file=(tmp_path / "said").open("w"))

    statuses = [
        report(against([count("now", value)], "main", results), "main", tmp_path / "ci", console)
        for value in (90, 91)
    ]

    assert statuses == [0, 1]
    assert "worse" in (tmp_path / "ci" / "junit.xml").read_text()
    assert (tmp_path / "ci" / "annotations.txt").read_text().startswith("::error")
    assert (tmp_path / "ci" / "summary.md").read_text().startswith("### Against main")


def test_compare_reads_both_sides_from_the_store(
    commits: list[str], url: str, tmp_path: Path
) -> None:
    Results(url).append([count(commits[4], 90), count(commits[7], 91)])

    result = CliRunner().invoke(cli, ["compare", "--database", url, "--out", str(tmp_path / "ci")])

    assert result.exit_code == 1
    assert "worse" in result.output
    (row,) = json.loads(CliRunner().invoke(cli, ["compare", "--json", "--database", url]).output)
    assert (row["change"], row["before"]["value"], row["now"]["value"]) == ("worse", 90, 91)
    assert row["blame"] == {"commit": commits[7], "last": commits[4], "unmeasured": 2}
    assert "+1 instructions" in (tmp_path / "ci" / "summary.md").read_text().replace("\\", "")


def test_exact_figures_move_at_each_changing_commit(commits: list[str]) -> None:
    values = {0: 10, 1: 10, 3: 12, 4: 12, 7: 11}
    records = [count(commits[i], value) for i, value in values.items()]

    (trend,) = trends(records, history("main"))

    assert [(move.first.commit, move.between) for move in trend.moves] == [
        (commits[3], 1),
        (commits[7], 2),
    ]
    assert trend.moves[0].describe() == (
        f"+20.0% at {commits[3]}: 10 to 12; or the unmeasured commit since {commits[1]}: "
        f"git bisect start {commits[3]} {commits[1]}"
    )


def test_history_is_plotted(commits: list[str], url: str) -> None:
    Results(url).append([count(commits[0], 10), count(commits[1], 20)])

    result = CliRunner().invoke(cli, ["history", "guest_instructions", "--database", url])
    listed = CliRunner().invoke(cli, ["results", "--database", url])
    lines = CliRunner().invoke(cli, ["results", "--database", url, "--json"]).output.splitlines()
    (trend,) = json.loads(
        CliRunner()
        .invoke(cli, ["history", "guest_instructions", "--json", "--database", url])
        .output
    )
    none = CliRunner().invoke(cli, ["results", "--database", url, "--metric", "step_ms"])

    assert result.exit_code == 0, result.output
    assert f"+100.0% at {commits[1]}: 10 to 20" in result.output
    assert result.output.count("█") == 60
    assert [point["value"] for point in trend["points"]] == [10, 20]
    assert [move["first"]["commit"] for move in trend["moves"]] == [commits[1]]
    assert "20 instructions" in listed.output
    assert "10 instructions" not in listed.output
    assert [Record.from_json(line).value for line in lines] == [10, 20]
    assert "no record is stored that matches" in none.output
