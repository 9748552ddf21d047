"""The gate of continuous integration: compare, print, write what it reads, say whether to stop."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pockengine.farm.results.commits import history, newest_known
from pockengine.farm.results.regression import Change, Comparison, compare_records, worse
from pockengine.farm.results.regression_report import annotations, junit, markdown
from pockengine.farm.results.results import Record, Results

STYLES = {
    Change.WORSE: "red",
    Change.BETTER: "green",
    Change.MISSING: "yellow",
    Change.UNSURE: "yellow",
}


def against(
    current: Sequence[Record], baseline: str, results: Results, skip: str | None = None
) -> list[Comparison]:
    """Compare a run's records with the newest stored ones on the way to a revision of git.

    `skip` is a commit that is not its own baseline. FarmError when git or the results know none.
    """
    commits = [commit for commit in history(baseline) if commit != skip]
    places = {(record.device, record.model) for record in current}
    stored = [
        record
        for device in sorted({device for device, _ in places})
        for record in results.find({"device": device})
        if (record.device, record.model) in places
    ]
    return compare_records(current, newest_known(stored, commits))


def report(
    comparisons: Sequence[Comparison], baseline: str, folder: Path | None, console: Console
) -> int:
    """Print a table; write junit.xml, annotations.txt and summary.md; return the exit status."""
    console.print(comparison_table(comparisons, baseline))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "junit.xml").write_text(junit(comparisons, baseline))
        (folder / "summary.md").write_text(markdown(comparisons, baseline))
        lines = annotations(comparisons)
        (folder / "annotations.txt").write_text("".join(f"{line}\n" for line in lines))
    return 1 if worse(comparisons) else 0


def comparison_table(comparisons: Sequence[Comparison], baseline: str) -> Table:
    """Lay comparisons out, what changed first."""
    table = Table(title=f"Against {baseline}")
    for heading in ("figure", "before", "now", "", "why"):
        table.add_column(heading, justify="right" if heading in ("before", "now") else "left")
    for one in sorted(comparisons, key=lambda one: one.change is Change.SAME):
        style = STYLES.get(one.change, "")
        table.add_row(one.name, one.before, one.now, one.change.value, one.why, style=style)
    return table
