"""The gate of continuous integration: compare, print, write reports, and set the exit status."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pockengine.farm.results.baseline import baseline_of, without_records
from pockengine.farm.results.blame import blame
from pockengine.farm.results.commits import common_commit, current_commit, history
from pockengine.farm.results.regression import Blame, Change, Comparison, compare_records, worse
from pockengine.farm.results.regression_report import annotations, junit, markdown
from pockengine.farm.results.results import Record, Results

STYLES = {
    Change.WORSE: "red",
    Change.BETTER: "green",
    Change.MISSING: "yellow",
    Change.UNSURE: "yellow",
}


def check_baseline(baseline: str, device: str, models: Collection[str], results: Results) -> None:
    """FarmError if no commit of a baseline, apart from this one, has a record of these models."""
    commits = set(history(common_commit(baseline, "HEAD"))) - {current_commit()}
    stored = results.find({"device": device})
    if not any(one.commit in commits and one.model in models for one in stored):
        raise without_records(len(commits))


def against(
    current: Sequence[Record], baseline: str, results: Results, revision: str = "HEAD"
) -> list[Comparison]:
    """Compare a run of a revision with the stored records up to a baseline of git.

    Commits of the baseline after the merge base do not count against the run, and no commit is its
    own baseline. A changed figure names the commit since which it differs. FarmError when git or
    the results know none.
    """
    own = {record.commit for record in current}
    commits = [one for one in history(common_commit(baseline, revision)) if one not in own]
    places = {(record.device, record.model) for record in current}
    stored = [
        record
        for device in sorted({device for device, _ in places})
        for record in results.find({"device": device})
        if (record.device, record.model) in places
    ]
    comparisons = compare_records(current, baseline_of(current, stored, commits))
    return [_with_blame(one, blame(one, stored, revision)) for one in comparisons]


def _with_blame(one: Comparison, found: Blame | None) -> Comparison:
    return one if found is None else replace(one, why=f"{one.why}; {found}", blame=found)


def report(
    comparisons: Sequence[Comparison], baseline: str, folder: Path | None, console: Console
) -> int:
    """Print a table; write the files for continuous integration; return the exit status."""
    console.print(comparison_table(comparisons, baseline))
    return conclude(comparisons, baseline, folder)


def conclude(comparisons: Sequence[Comparison], baseline: str, folder: Path | None) -> int:
    """Write junit.xml, annotations.txt and summary.md; return the exit status."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "junit.xml").write_text(junit(comparisons, baseline))
        (folder / "summary.md").write_text(markdown(comparisons, baseline))
        lines = annotations(comparisons)
        (folder / "annotations.txt").write_text("".join(f"{line}\n" for line in lines))
    return 1 if worse(comparisons) else 0


def comparison_table(comparisons: Sequence[Comparison], baseline: str) -> Table:
    """Lay comparisons out, changed ones first."""
    table = Table(title=f"Against {baseline}")
    for heading in ("figure", "before", "now", "", "why"):
        table.add_column(heading, justify="right" if heading in ("before", "now") else "left")
    for one in sorted(comparisons, key=lambda one: one.change is Change.SAME):
        style = STYLES.get(one.change, "")
        table.add_row(one.name, one.before, one.now, one.change.value, one.why, style=style)
    return table
