"""The study's figures as the project's records, one JSON object per line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pockengine import __version__
from pockengine.farm.load import BUSY
from pockengine.farm.results.results import Record, now
from pockengine.files import write_text_whole
from pockengine.studies.sparse.figures import PairFigures, SchemeRow, disturbed
from pockengine.studies.sparse.journal import Journal
from pockengine.studies.sparse.measures import BOARD
from pockengine.studies.sparse.subjects import BATCH

HOST = "host"


def write_records(journal: Journal, figures: Sequence[PairFigures], path: Path) -> None:
    """Write all figures of the page atomically."""
    time = now()
    lines = [
        record.to_json()
        for one in figures
        for row in one.rows
        for record in _records(one, row, time)
    ]
    write_text_whole(path, "".join(f"{line}\n" for line in lines))


def _records(figures: PairFigures, row: SchemeRow, time: str) -> Iterator[Record]:
    low, high = min(row.accuracies), max(row.accuracies)
    facts = figures.facts
    note = (
        f"test part: {facts.get('test')} examples, {facts.get('test_digest')}; train "
        f"{facts.get('train_digest')}; validation {facts.get('validation_digest')}; "
        f"rate {row.rate:g}"
    )
    accuracies = row.accuracies
    found = _Figure("accuracy", "1", row.mean, (low, high, len(accuracies)), note, accuracies)
    yield _record(figures, row, time, found)
    for metric, value in (
        ("arena_bytes", row.arena_bytes),
        ("extra_arena_bytes", row.extra_bytes),
        ("optimizer_state_bytes", row.state_bytes),
        ("trained_parameters", row.trained),
    ):
        unit = "bytes" if metric.endswith("bytes") else "1"
        yield _record(figures, row, time, _Figure(metric, unit, value))
    if row.step is not None:
        spread = (row.step["low"], row.step["high"], int(row.step["n"]))
        mark = BUSY if disturbed(row.step) else None
        found = _Figure("step_ms", "ms", row.step["median"], spread, mark)
        yield _record(figures, row, time, found)
    if row.instructions is not None:
        found = _Figure("guest_instructions", "instructions", row.instructions)
        yield _record(figures, row, time, found)


@dataclass(frozen=True)
class _Figure:
    """A metric's value; `spread` is min, max and n of `samples`."""

    metric: str
    unit: str
    value: float
    spread: tuple[float, float, int] | None = None
    note: str | None = None
    samples: tuple[float, ...] | None = None


def _record(figures: PairFigures, row: SchemeRow, time: str, figure: _Figure) -> Record:
    model, dataset = figures.pair.split("/")
    low, high, count = figure.spread or (figure.value, figure.value, 1)
    emulated = figure.metric.startswith("guest_")
    return Record(
        time=time,
        commit=str(figures.facts.get("commit", "unknown")),
        device=BOARD if emulated else HOST,
        board=f"{BOARD}-emulated" if emulated else HOST,
        emulated=emulated,
        model=model,
        dataset=dataset,
        batch=int(figures.facts.get("batch", BATCH)),
        seq_len=figures.facts.get("seq_len"),
        dtype="f32",
        scheme=row.scheme,
        threads=1,
        engine="pockengine",
        engine_version=__version__,
        metric=figure.metric,
        unit=figure.unit,
        value=float(figure.value),
        min=float(low),
        max=float(high),
        n=count,
        ok=not row.diverged,
        note=figure.note,
        samples=figure.samples,
    )
