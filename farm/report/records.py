"""One page from stored records: newest figures, and plots of related ones.

Bars of a step's cost, memory over a step, accuracy over memory, and figures over commits.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import jinja2

from pockengine.errors import FarmError
from pockengine.farm.bench.running import OURS
from pockengine.farm.report.records_plots import bars, front, lines, timeline
from pockengine.farm.results.newest import newest
from pockengine.farm.results.regression import figure, number
from pockengine.farm.results.results import Record, now
from pockengine.farm.results.trend import trends

TEMPLATE = "records.html.j2"
STEP_COSTS = ("step_ms", "guest_instructions", "guest_packets")
MEMORY = ("arena_bytes", "peak_rss_bytes")
ACCURACY, LIVE = "accuracy", "arena_bound_bytes"
DRAWN = (*STEP_COSTS, *MEMORY, "binary_bytes")
"""Metrics that are plotted."""


@dataclass(frozen=True)
class Section:
    """A model with its batch on a device: its figures, and pictures of some as data URLs."""

    name: str
    records: list[Record]
    pictures: list[tuple[str, str]]


def records_page(records: Sequence[Record], commits: Sequence[str]) -> str:
    """Return a page of HTML that needs no other file; `commits` give an order, newest first.

    FarmError if there is no record.
    """
    if not records:
        raise FarmError("no record is stored that matches; `pockengine bench` stores some")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(TEMPLATE).render(
        time=now(), sections=list(_sections(records, commits)), figure=figure, number=number
    )


def _sections(records: Sequence[Record], commits: Sequence[str]) -> Iterator[Section]:
    for name, group in groupby(sorted(newest(records), key=_subject), _subject):
        same = list(group)
        history = [record for record in records if _subject(record) == name]
        pictures = [*_bars(same), *_timeline(same), *_front(same), *_lines(history, commits)]
        yield Section(name, same, pictures)


def _subject(record: Record) -> str:
    data = f", {record.dataset}" if record.dataset else ""
    length = f" of {record.seq_len} tokens" if record.seq_len else ""
    board = f" ({record.board})" if record.board != record.device else ""
    emulated = ", emulated" if record.emulated else ""
    place = f"{record.device}{board}{emulated}"
    return f"{record.model}, batch {record.batch}{length}{data}, on {place}"


def _bars(records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Yield a title and a picture for each metric that schemes or engines can be compared by."""
    for metric in DRAWN:
        same = [record for record in records if record.metric == metric and record.ok]
        if len(same) > 1:
            title = f"{metric}, newest of each"
            yield title, _data_url(bars([(_series(record), record) for record in same]))


def _timeline(records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Yield a title and a picture if it is known what is alive at each kernel of a step."""
    same = [record for record in records if record.metric == LIVE and record.samples]
    if same:
        drawn = timeline([(_variant(record), record) for record in same])
        yield "bytes of the arena in use over a step", _data_url(drawn)


def _front(records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Yield a title and a picture if schemes have both an accuracy and a size of their memory."""
    sound = [record for record in records if record.ok]
    for metric in MEMORY:
        sizes = {_series(record): record for record in sound if record.metric == metric}
        points = [
            (_variant(record), record, sizes[_series(record)])
            for record in sound
            if record.metric == ACCURACY and _series(record) in sizes
        ]
        if len(points) > 1:
            yield f"accuracy over {metric}", _data_url(front(points))


def _lines(records: Sequence[Record], commits: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield a title and a picture for each of PockEngine's metrics measured at several commits."""
    ours = [record for record in records if record.engine == OURS and record.ok]
    for metric in DRAWN:
        same = [record for record in ours if record.metric == metric]
        measured = {record.commit for record in same}
        known = [commit for commit in reversed(commits) if commit in measured]
        if len(known) > 1:
            drawn = lines(trends(same, commits), known)
            yield f"{metric} over the commits", _data_url(drawn)


def _series(record: Record) -> str:
    return f"{_variant(record)}, {record.engine}, threads {record.threads}"


def _variant(record: Record) -> str:
    return record.scheme if record.dtype == "f32" else f"{record.scheme}, {record.dtype}"


def _data_url(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
