"""The paper's rows as tables of a terminal, at most 100 columns wide, and a sentence of them."""

from collections.abc import Sequence

from rich.table import Table

from pockengine.farm.bench.paper.rows import BY, ModelSpeedup, PaperRow, PublicFigures
from pockengine.farm.cycles.modelled import what_it_means

NOTHING = "-"
COUNTED = BY["guest_instructions"]
HEADINGS = ("M instr.", "x TF", "paper x TF", "modelled ms", "paper ms", "x paper", "error")


def headings(rows: Sequence[PaperRow]) -> tuple[str, ...]:
    """Return the headings of the figures: milliseconds if time was measured."""
    timed = any(row.metric == "step_ms" for row in rows)
    return ("step ms" if timed else HEADINGS[0], *HEADINGS[1:])


def cells_of(row: PaperRow) -> tuple[str, ...]:
    """Return a row's figures as text, in the order of `headings`."""
    if row.value is None:
        return ("gap",) + (NOTHING,) * (len(HEADINGS) - 1)
    size = row.value / 1e6 if row.metric == "guest_instructions" else row.value
    return (
        f"{size:,.1f}",
        ratio_text(row.over_tensorflow),
        row.paper_over or NOTHING,
        NOTHING if row.modelled_ms is None else f"{row.modelled_ms:,.1f}",
        NOTHING if row.paper_ms is None else f"{row.paper_ms:,.0f}",
        ratio_text(row.paper_ratio),
        NOTHING if row.error is None else f"{row.error:.0e}",
    )


def ratio_text(value: float | None) -> str:
    """Return a ratio as text."""
    return NOTHING if value is None else f"{value:.2f}"


def rows_table(model: str, batch: int, rows: Sequence[PaperRow], board: str) -> Table:
    """Lay one model and batch out, scheme by scheme."""
    table = Table(title=f"{model}, batch {batch}, on {board}")
    table.add_column("scheme")
    table.add_column("engine", no_wrap=True)
    for heading in headings(rows):
        table.add_column(heading, justify="right")
    last = ""
    for row in rows:
        if last not in ("", row.cell.scheme):
            table.add_section()
        last = row.cell.scheme
        table.add_row(row.cell.scheme, row.cell.engine, *cells_of(row))
    return table


def speedup_table(speedups: Sequence[ModelSpeedup], figures: PublicFigures) -> Table:
    """Lay out the speed-ups by model, with the paper's range."""
    over = figures.over_tensorflow
    caption = "over TensorFlow's full training; sparse: our sparse step over its full graph"
    table = Table(title="speed-up over TensorFlow", caption=caption)
    table.add_column("model, batch")
    table.add_column("by")
    for heading in ("full / eager", "full / graph", "sparse / graph", "paper"):
        table.add_column(heading, justify="right")
    for one in speedups:
        ratios = map(ratio_text, (one.eager, one.graph, one.sparse))
        table.add_row(f"{one.model}, {one.batch}", one.by, *ratios, str(over) if over else NOTHING)
    return table


def sentence(
    rows: Sequence[PaperRow], speedups: Sequence[ModelSpeedup], figures: PublicFigures
) -> str:
    """Return the result in one sentence."""
    checked = sum(row.value is not None for row in rows)
    gaps = len(rows) - checked
    text = f"{checked} checked rows, {gaps} gaps."
    parts = []
    for by in dict.fromkeys(one.by for one in speedups):
        graph = [one.graph for one in speedups if one.graph and one.by == by]
        sparse = [one.sparse for one in speedups if one.sparse and one.by == by]
        if graph:
            scheme = f", the sparse scheme {_span(sparse)} times" if sparse else ""
            unit = f"fewer {by}" if by == COUNTED else f"less {by}"
            parts.append(f"{_span(graph)} times {unit} than TensorFlow's graph{scheme}")
    if not parts:
        return text
    text += f" Full training takes {'; '.join(parts)}"
    over = figures.over_tensorflow
    paper = f". The paper's speed-up on this board: {over} times ({over.source})" if over else ""
    return f"{text}{paper}."


def model_note(rows: Sequence[PaperRow], device: str) -> str:
    """Return the explanation of the rows' modelled milliseconds, with their error; empty without
    any."""
    return what_it_means(device) if any(row.modelled_ms for row in rows) else ""


def _span(values: Sequence[float]) -> str:
    """Return a range as text, or its one value."""
    return " to ".join(dict.fromkeys(f"{x:.1f}" for x in (min(values), max(values))))
