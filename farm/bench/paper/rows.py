"""The rows of the paper's tables: ours, the paper's public figure, and the ratio, or a reason."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pockengine.farm.bench.paper.cells import ENGINES, OURS, SCHEMES, TENSORFLOW, Cell
from pockengine.farm.results.results import Record

FIGURES = Path(__file__).with_name("figures.toml")
SPEED = ("guest_instructions", "step_ms")
MODELLED = "modelled_ms"
FULL, SPARSE = "full", "sparse"


@dataclass(frozen=True)
class PublicSpeedup:
    """A public range of how many times faster a board's training is than a framework's."""

    device: str
    over: str
    low: float
    high: float
    source: str

    def __str__(self) -> str:
        """Return the range."""
        return f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class PublicStep:
    """A public step time of PockEngine on a board."""

    device: str
    model: str
    batch: int
    scheme: str
    ms: float
    source: str


@dataclass(frozen=True)
class PublicFigures:
    """The public figures of one device."""

    speedups: tuple[PublicSpeedup, ...]
    steps: tuple[PublicStep, ...]

    @property
    def over_tensorflow(self) -> PublicSpeedup | None:
        """The range over TensorFlow."""
        return next((x for x in self.speedups if x.over == "tensorflow"), None)

    def step(self, cell: Cell) -> PublicStep | None:
        """The public time of one of our cells."""
        if cell.engine != OURS:
            return None
        return next((x for x in self.steps if (x.model, x.batch, x.scheme) == cell.job), None)


def figures_of(device: str) -> PublicFigures:
    """Return the public figures of a device."""
    table = tomllib.loads(FIGURES.read_text(encoding="utf-8"))
    speedups = [PublicSpeedup(**row) for row in table["speedup"] if row["device"] == device]
    steps = [PublicStep(**row) for row in table["step"] if row["device"] == device]
    return PublicFigures(tuple(speedups), tuple(steps))


@dataclass(frozen=True)
class PaperRow:
    """A cell's figure, TensorFlow's of the same cell and the paper's, or a reason.

    `value` is instructions or milliseconds, `over_tensorflow` the best of TensorFlow's modes over
    it, `paper_ratio` the paper's step time over the modelled one.
    """

    cell: Cell
    metric: str = ""
    value: float | None = None
    error: float | None = None
    over_tensorflow: float | None = None
    arena_bytes: float | None = None
    modelled_ms: float | None = None
    paper_ms: float | None = None
    paper_over: str = ""
    reason: str = ""

    @property
    def paper_ratio(self) -> float | None:
        """The paper's milliseconds over ours: modelled ones of an emulated board."""
        ms = self.value if self.metric == "step_ms" else self.modelled_ms
        return self.paper_ms / ms if self.paper_ms and ms else None


def rows_of(
    measured: Mapping[Cell, Sequence[Record]], reasons: Mapping[Cell, str], figures: PublicFigures
) -> list[PaperRow]:
    """Return a row for each cell, by model, batch, scheme and engine."""
    by_metric = {cell: {x.metric: x for x in those} for cell, those in measured.items()}
    cells = sorted({*measured, *reasons}, key=_place)
    return [
        _row(cell, by_metric, figures)
        if cell in by_metric
        else PaperRow(cell, reason=reasons[cell], paper_ms=_paper_ms(cell, figures))
        for cell in cells
    ]


def _place(cell: Cell) -> tuple[object, ...]:
    scheme = SCHEMES.index(cell.scheme) if cell.scheme in SCHEMES else len(SCHEMES)
    engine = ENGINES.index(cell.engine) if cell.engine in ENGINES else len(ENGINES)
    return cell.model, cell.batch, scheme, cell.scheme, engine, cell.engine


def _row(
    cell: Cell, by_metric: Mapping[Cell, Mapping[str, Record]], figures: PublicFigures
) -> PaperRow:
    records = by_metric[cell]
    metric = next(name for name in SPEED if name in records)
    value = records[metric].value
    best = _best_of_tensorflow(by_metric, cell, metric)
    over = figures.over_tensorflow
    compared = cell.engine == OURS and cell.scheme == FULL and over is not None
    modelled = records.get(MODELLED)
    arena = records.get("arena_bytes")
    return PaperRow(
        cell,
        metric,
        value,
        error=records["max_rel_error"].value,
        over_tensorflow=best / value if best is not None else None,
        arena_bytes=arena.value if arena else None,
        modelled_ms=modelled.value if modelled else None,
        paper_ms=_paper_ms(cell, figures),
        paper_over=str(over) if compared else "",
    )


def _paper_ms(cell: Cell, figures: PublicFigures) -> float | None:
    step = figures.step(cell)
    return step.ms if step else None


def _best_of_tensorflow(
    by_metric: Mapping[Cell, Mapping[str, Record]], cell: Cell, metric: str
) -> float | None:
    """Return TensorFlow's figure of the same job; its faster mode counts."""
    found = [Cell(*cell.job, engine) for engine in TENSORFLOW]
    values = [by_metric[x][metric].value for x in found if metric in by_metric.get(x, {})]
    return min(values, default=None)


@dataclass(frozen=True)
class ModelSpeedup:
    """Speed-ups for one model and batch: TensorFlow's full step over our step.

    `by` selects the comparison: by the measured figure, or by modelled milliseconds. The first
    ratio is of the same full training against TensorFlow op by op, the second against its graph;
    `sparse` is our sparse step over TensorFlow's full graph, as the paper compares.
    """

    model: str
    batch: int
    by: str
    eager: float | None
    graph: float | None
    sparse: float | None


BY = {"guest_instructions": "instructions", "step_ms": "time", MODELLED: "modelled time"}
"""Metrics in the words of a table."""


def speedups_of(rows: Sequence[PaperRow]) -> list[ModelSpeedup]:
    """Return the models that have our full step and one of TensorFlow's; measured figures first."""
    found = []
    for metric in BY:
        values = {row.cell: value for row in rows if (value := _figure(row, metric))}
        found += _speedups(BY[metric], values)
    return found


def _figure(row: PaperRow, metric: str) -> float | None:
    return row.modelled_ms if metric == MODELLED else row.value if row.metric == metric else None


def _speedups(by: str, values: Mapping[Cell, float]) -> list[ModelSpeedup]:
    result = []
    for model, batch in dict.fromkeys((cell.model, cell.batch) for cell in values):
        ours = values.get(Cell(model, batch, FULL, OURS))
        sparse = values.get(Cell(model, batch, SPARSE, OURS))
        eager = values.get(Cell(model, batch, FULL, "tf-eager"))
        graph = values.get(Cell(model, batch, FULL, "tf-graph"))
        found = (_ratio(eager, ours), _ratio(graph, ours), _ratio(graph, sparse))
        if any(found):
            result.append(ModelSpeedup(model, batch, by, *found))
    return result


def _ratio(theirs: float | None, ours: float | None) -> float | None:
    return theirs / ours if theirs and ours else None
