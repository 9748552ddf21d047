"""The HTML page of a suite, beside its pictures; everything that is not ours is escaped."""

from collections.abc import Sequence
from pathlib import Path

import jinja2
from rich.table import Table

from pockengine.backends.peaks import Peaks, describe_peaks
from pockengine.farm.bench.suite import SuiteResult
from pockengine.farm.bench.suite_table import lines_table, schemes_table, summary_table
from pockengine.farm.report.memory import memory_file
from pockengine.farm.report.plots import draw_bars, draw_roofline
from pockengine.farm.results.commits import current_commit
from pockengine.farm.results.results import now

TEMPLATE = "report.html.j2"
BARS, ROOFLINE = "bars.svg", "roofline.svg"


def write_report(results: Sequence[SuiteResult], peaks: Peaks, folder: Path) -> Path:
    """Write the page and its pictures into a folder; the memory's pictures are there already."""
    folder.mkdir(parents=True, exist_ok=True)
    draw_bars(results, folder / BARS)
    draw_roofline(results, peaks, folder / ROOFLINE)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template(TEMPLATE).render(
        commit=current_commit(),
        time=now(),
        peaks=describe_peaks(peaks),
        bars=BARS,
        roofline=ROOFLINE,
        summary=_cells(summary_table(results)),
        schemes=_cells(schemes_table(results)),
        models=[
            {
                "name": result.name,
                "busy": result.busy,
                "table": _cells(lines_table(result, peaks)),
                "missing": result.missing,
                "memory": memory_file(result),
            }
            for result in results
        ],
    )
    page = folder / "index.html"
    page.write_text(text, encoding="utf-8")
    return page


def _cells(table: Table) -> list[list[str]]:
    """Return a terminal table's headings and rows as text."""
    columns = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]
