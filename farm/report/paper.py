"""The page of the paper's tables: HTML and Markdown with a bar chart, from rows and records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import jinja2
import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from pockengine.farm.bench.paper.cells import ENGINES, OURS
from pockengine.farm.bench.paper.joined import JoinedTable
from pockengine.farm.bench.paper.rows import (
    FULL,
    SPARSE,
    ModelSpeedup,
    PaperRow,
    PublicFigures,
    figures_of,
    speedups_of,
)
from pockengine.farm.bench.paper.table import cells_of, headings, model_note, ratio_text, sentence
from pockengine.farm.boards.board import Board
from pockengine.farm.report.plots import STYLE
from pockengine.farm.results.results import Record

TEMPLATES = ("paper.html.j2", "paper.md.j2")
BARS = (
    ("tf-eager", FULL, "#c6c6c6"),
    ("tf-graph", FULL, "#969696"),
    ("torch-eager", FULL, "#fdae6b"),
    ("mnn-train", FULL, "#a1d99b"),
    (OURS, FULL, "#9ecae1"),
    (OURS, "bias-only", "#4292c6"),
    (OURS, SPARSE, "#084594"),
)
"""Engines and schemes in the order of the paper's figure, with their colors."""
BASE, INSTRUCTIONS = "tf-graph", "instructions"


@dataclass(frozen=True)
class Section:
    """One model and batch: the rows of its table as text, and why cells have no figure."""

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]
    gaps: Mapping[str, str]


@dataclass(frozen=True)
class Page:
    """A board's rows, their records, and tables of other commands' records."""

    board: Board
    rows: Sequence[PaperRow]
    records: Sequence[Record]
    joined: Sequence[JoinedTable] = ()


def write_paper(page: Page, folder: Path) -> Path:
    """Write the chart, `index.html` and `README.md` of a page into a folder; return the HTML."""
    board, rows = page.board, page.rows
    folder.mkdir(parents=True, exist_ok=True)
    chart = folder / f"{board.device}.svg"
    draw_speedups(rows, board.name, chart)
    figures, speedups = figures_of(board.device), speedups_of(rows)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=jinja2.select_autoescape(["html.j2"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    values = {
        "board": board.name,
        "emulated": board.emulated,
        "chart": chart.name,
        "sentence": sentence(rows, speedups, figures),
        "note": model_note(rows, board.device),
        "commits": sorted({record.commit for record in page.records}),
        "times": _span(page.records),
        "versions": _versions(page.records),
        "speedups": _speedup_rows(speedups, figures),
        "sections": sections_of(rows),
        "joined": page.joined,
        "sources": sorted({x.source for x in figures.speedups} | {x.source for x in figures.steps}),
    }
    for template, name in zip(TEMPLATES, ("index.html", "README.md"), strict=True):
        text = environment.get_template(template).render(**values)
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "index.html"


def sections_of(rows: Sequence[PaperRow]) -> list[Section]:
    """Return a section for each model and batch."""
    sections = []
    for (model, batch), group in groupby(rows, key=lambda row: (row.cell.model, row.cell.batch)):
        those = list(group)
        gaps: dict[str, list[str]] = {}
        for row in those:
            if row.reason:
                gaps.setdefault(row.reason, []).append(f"{row.cell.engine} {row.cell.scheme}")
        sections.append(
            Section(
                f"{model}, batch {batch}",
                ("scheme", "engine", *headings(rows)),
                [(row.cell.scheme, row.cell.engine, *cells_of(row)) for row in those],
                {", ".join(names): reason for reason, names in gaps.items()},
            )
        )
    return sections


def _span(records: Sequence[Record]) -> str:
    days = sorted({record.time[:10] for record in records})
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "no date"


def _versions(records: Sequence[Record]) -> list[str]:
    versions = {record.engine: record.engine_version for record in records}
    return [f"{engine} {versions[engine]}" for engine in ENGINES if engine in versions]


def _speedup_rows(
    speedups: Sequence[ModelSpeedup], figures: PublicFigures
) -> list[tuple[str, ...]]:
    over = figures.over_tensorflow
    return [
        (
            f"{one.model}, batch {one.batch}",
            one.by,
            *(ratio_text(x) for x in (one.eager, one.graph, one.sparse)),
            str(over) if over else "-",
        )
        for one in speedups
    ]


def _measured(rows: Sequence[PaperRow]) -> str:
    timed = any(row.metric == "step_ms" for row in rows)
    return "time" if timed else INSTRUCTIONS


def draw_speedups(rows: Sequence[PaperRow], board: str, path: Path) -> None:
    """Draw each engine's speed over TensorFlow's full graph, a group of bars for each model."""
    values = {
        (x.cell.model, x.cell.batch, x.cell.engine, x.cell.scheme): x.value for x in rows if x.value
    }
    groups = [
        (model, batch)
        for model, batch in dict.fromkeys((row.cell.model, row.cell.batch) for row in rows)
        if values.get((model, batch, BASE, FULL))
    ]
    shown = {key[2:] for key in values}
    kinds = [bar for bar in BARS if bar[:2] in shown]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(max(5.0, 1.8 * len(groups)), 3.2), layout="constrained")
        axis = figure.subplots()
        width = 0.88 / max(1, len(kinds))
        for index, (engine, scheme, color) in enumerate(kinds):
            found = [
                (place, values[(*group, BASE, FULL)] / value)
                for place, group in enumerate(groups)
                if (value := values.get((*group, engine, scheme)))
            ]
            places = np.array([place for place, _ in found]) + index * width
            heights = [height for _, height in found]
            label = engine if scheme == FULL else f"{engine} {scheme}"
            bars = axis.bar(places, heights, width, label=label, color=color)
            axis.bar_label(bars, fmt="%.1f", fontsize=5, padding=1)
        names = [f"{model}\nbatch {batch}" for model, batch in groups]
        axis.set_xticks(np.arange(len(groups)) + 0.44 - width / 2, names, parse_math=False)
        axis.set_ylabel("times fewer" if _measured(rows) == INSTRUCTIONS else "times faster")
        axis.set_title(f"{_measured(rows)} of a training step on {board}: {BASE} {FULL} over each")
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(fontsize=6, ncols=4, loc="upper left")
        axis.margins(y=0.25)
        figure.savefig(path, metadata={"Date": None})
