"""Results of `--suite=runtimes`, as a table."""

from collections.abc import Iterator

from rich.table import Table

from pockengine.farm.bench.running import OURS, Line
from pockengine.farm.bench.suite import REFERENCE, SuiteResult

NOTHING = "-"
MIB = 2**20


def runtimes_table(result: SuiteResult, threads: int) -> Table:
    """Lay one model out, scheme by scheme: ours in C, in the runtimes, then the frameworks."""
    caption = [
        f"Medians of steps in turns, {threads} thread{'s' if threads > 1 else ''} each.",
        f"x C: our step in C is so many times faster; x {REFERENCE}: this is so many times faster.",
    ]
    caption += [f"* {result.busy}"] if result.busy else []
    table = Table(title=result.name, caption="\n".join(caption))
    table.add_column("scheme")
    table.add_column("engine", no_wrap=True)
    for heading in (
        "step ms",
        "min to max",
        "x C",
        f"x {REFERENCE}",
        "error",
        "peak MiB",
        "file MiB",
    ):
        table.add_column(heading, justify="right")
    table.add_column("first step ms", justify="right")
    for scheme in dict.fromkeys(line.scheme for line in result.lines):
        lines = [line for line in result.lines if line.scheme == scheme]
        for line in lines:
            table.add_row(scheme, line.engine, *_cells(line, lines))
        for name in result.missing:  # the reasons are below the table
            if name.endswith(f" {scheme}"):
                table.add_row(scheme, name.removesuffix(f" {scheme}"), NOTHING, "not measured")
        table.add_section()
    return table


def _cells(line: Line, lines: list[Line]) -> Iterator[str]:
    ms = line.timing.median
    yield f"{ms:.2f}"
    yield f"{line.timing.min:.2f} to {line.timing.max:.2f}"
    yield f"{ms / _median(OURS, lines):.2f}"
    yield f"{_median(REFERENCE, lines) / ms:.2f}"
    yield f"{line.max_rel_error:.0e}"
    yield f"{line.peak_rss_bytes / MIB:.0f}"
    yield f"{line.file_bytes / MIB:.1f}" if line.file_bytes else NOTHING
    yield f"{line.first_step_ms:,.0f}"


def _median(engine: str, lines: list[Line]) -> float:
    return next(line.timing.median for line in lines if line.engine == engine)
