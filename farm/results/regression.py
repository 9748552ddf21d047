"""Detect regressions: compare a run's measurements with a baseline's.

Records are comparable if everything that a figure depends on is equal. Counts and sizes are exact:
any increase counts. Resident memory varies with the system's paging: 1 %, and 192 KiB, is no
change. Times are noisy. The comparison uses the ratio of our time to the reference's in the same
turn, pair by pair. Only a difference outside the noise interval of both runs counts as a change.
"""

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pockengine.farm.results.noise import Interval, ratio_interval
from pockengine.farm.results.results import Record

OURS = "pockengine"
EXACT = {
    "arena_bytes",
    "arena_bound_bytes",
    "binary_bytes",
    "file_bytes",
    "flops",
    "multiply_adds",
    "guest_instructions",
    "guest_packets",
    "traffic_bytes",
}
NOISY = {"step_ms", "first_step_ms", "compile_s", "peak_rss_bytes"}
MORE_IS_BETTER = {"tokens_per_s"}
SMALLEST_CHANGE = 0.02  # of a paired ratio: smaller changes are ignored
SMALLEST_UNPAIRED = 0.10  # the machine itself differs by that from day to day
RESIDENT = "peak_rss_bytes"
SMALLEST_RESIDENT = 0.01
PAGES = 192 << 10
"""Bytes by which resident memory differs between runs of one program: 12 runs of a runner of 3.3 MB
were within 172 KB, as a system maps pages around those that are used."""

NO_FIGURE = "the baseline has no such figure"
Key = tuple[object, ...]


class Change(enum.Enum):
    """How a figure compares with its baseline."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    NEW = "new"
    MISSING = "missing"
    INVALID = "invalid"
    UNSURE = "unsure"


@dataclass(frozen=True)
class Blame:
    """The oldest of the commits that compare alike with the baseline."""

    commit: str
    last: str  # the newest that was measured before, and does not
    unmeasured: int  # commits in between, those of merged branches too: each may be to blame

    def __str__(self) -> str:
        text = f"since {self.commit}"
        if self.unmeasured:
            text += f", or one of {self.unmeasured} commits not measured after {self.last}"
        return text


@dataclass(frozen=True)
class Comparison:
    """One figure now and before; `interval` is that of now over before, where there is noise."""

    record: Record
    baseline: Record | None
    change: Change
    why: str
    interval: Interval | None = None
    blame: Blame | None = None

    @property
    def name(self) -> str:
        """The figure's description."""
        one = self.record
        return f"{one.device} {one.model} batch {one.batch} {one.scheme} {one.metric}"

    @property
    def before(self) -> str:
        """The baseline's figure as text."""
        return "-" if self.baseline is None else figure(self.baseline)

    @property
    def now(self) -> str:
        """This run's figure as text."""
        return "-" if self.change is Change.MISSING else figure(self.record)


def compare_records(current: Sequence[Record], baseline: Sequence[Record]) -> list[Comparison]:
    """Compare our figures of one run with those of a baseline, in the order of the run.

    Of several records of one figure the last sound one counts, and all its samples. A figure that
    the baseline has of something that this run measured at all, and the run has not, is missing.
    """
    before = _by_key(baseline)
    now = _by_key(current)
    comparisons = [
        _compare(_counting(records), before.get(key, []), _peers(current), _peers(baseline))
        for key, records in now.items()
    ]
    places = {place_of(record) for record in current}
    for key, records in before.items():
        if key not in now and place_of(records[-1]) in places:
            last = records[-1]
            comparisons.append(Comparison(last, last, Change.MISSING, "it was not measured now"))
    return comparisons


def worse(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Return the comparisons that block a change: regressions, missing and invalid figures."""
    bad = (Change.WORSE, Change.MISSING, Change.INVALID)
    return [one for one in comparisons if one.change in bad]


def key_of(record: Record) -> Key:
    """Return everything that a figure depends on except the code; times also depend on the
    board.
    """
    board = record.board if record.metric in NOISY else ""
    place = (record.device, board, record.emulated, record.model, record.dataset)
    what = (record.batch, record.seq_len, record.dtype, record.scheme, record.threads)
    return (*place, *what, record.engine, record.metric)


def figure(record: Record) -> str:
    """Return a record's value with its unit; a plain number has none."""
    return number(record.value) + ("" if record.unit == "1" else f" {record.unit}")


def number(value: float) -> str:
    """Return a number as tables show it: whole, with three decimals, or small ones as 1.2e-06."""
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.3f}" if abs(value) >= 0.001 else f"{value:.2g}"


def figure_of(record: Record) -> Key:
    """Return the common key of our figure and the references' figures."""
    return (*key_of(record)[:-2], record.metric)


def place_of(record: Record) -> Key:
    """Return the key shared by several figures of one run."""
    return (record.device, record.emulated, record.model, record.batch, record.scheme)


def _counting(records: Sequence[Record]) -> Record:
    """Return the last record, or the last of a quiet machine where that one is of a busy one."""
    last = records[-1]
    quiet = [record for record in records if record.ok and not record.busy]
    return quiet[-1] if quiet and last.ok else last


def _by_key(records: Iterable[Record]) -> dict[Key, list[Record]]:
    """Return our comparable records by key."""
    groups: dict[Key, list[Record]] = {}
    for record in records:
        if record.engine == OURS and record.metric in EXACT | NOISY | MORE_IS_BETTER:
            groups.setdefault(key_of(record), []).append(record)
    return groups


def _peers(records: Iterable[Record]) -> dict[Key, dict[str, Record]]:
    """Return the references' records by the figure that ours has too, then by engine."""
    latest: dict[Key, dict[str, Record]] = {}
    for record in records:
        if record.engine != OURS:
            latest.setdefault(figure_of(record), {})[record.engine] = record
    return latest


def _compare(
    record: Record,
    baselines: Sequence[Record],
    peers: Mapping[Key, Mapping[str, Record]],
    old_peers: Mapping[Key, Mapping[str, Record]],
) -> Comparison:
    sound = [one for one in baselines if one.ok and not one.busy]
    last = sound[-1] if sound else None
    if not record.ok:
        return Comparison(record, last, Change.INVALID, record.note or "its check failed")
    if last is None:
        why = "the baseline's was taken on a busy machine" if baselines else NO_FIGURE
        return Comparison(record, None, Change.NEW, why)
    if record.busy:
        return Comparison(record, last, Change.UNSURE, record.note or "")
    if record.metric in EXACT:
        return _compare_exact(record, last)
    name = figure_of(record)
    ours, theirs = peers.get(name, {}), old_peers.get(name, {})
    for engine in ours:
        pairs = _ratios(record, ours[engine]), _ratios(last, theirs.get(engine))
        if all(pairs):
            return _compare_noisy(
                record, last, *pairs, smallest=SMALLEST_CHANGE, how=f"beside {engine}"
            )
    smallest = SMALLEST_UNPAIRED
    if record.metric == RESIDENT and last.value:
        smallest = max(SMALLEST_RESIDENT, PAGES / last.value)
    samples = record.samples or (), last.samples or ()
    if all(samples):
        return _compare_noisy(record, last, *samples, smallest=smallest, how="unpaired")
    return _compare_ranges(record, last, smallest)


def _compare_exact(record: Record, last: Record) -> Comparison:
    difference = record.value - last.value
    if not difference:
        return Comparison(record, last, Change.SAME, "equal")
    change = Change.WORSE if difference > 0 else Change.BETTER
    return Comparison(record, last, change, f"{difference:+,.0f} {record.unit}")


def _ratios(record: Record, peer: Record | None) -> tuple[float, ...]:
    """Return ours over the peer's, turn by turn; nothing if they did not take turns."""
    if peer is None or not record.samples or not peer.samples or not peer.ok:
        return ()
    if len(record.samples) != len(peer.samples) or min(peer.samples) <= 0:
        return ()
    return tuple(a / b for a, b in zip(record.samples, peer.samples, strict=True))


def _compare_noisy(
    record: Record,
    last: Record,
    now: Sequence[float],
    before: Sequence[float],
    smallest: float,
    how: str,
) -> Comparison:
    """Compare two samples by the interval of the ratio of their medians."""
    interval = ratio_interval(now, before)
    up, down = interval.low > 1 + smallest, interval.high < 1 / (1 + smallest)
    if record.metric in MORE_IS_BETTER:
        up, down = down, up
    change = Change.WORSE if up else Change.BETTER if down else Change.SAME
    return Comparison(record, last, change, why=f"{how}: {interval}", interval=interval)


def _compare_ranges(record: Record, last: Record, smallest: float) -> Comparison:
    """Compare ranges without samples: disjoint ranges, or sufficiently different medians."""
    ratio = record.value / last.value if last.value else math.inf
    if record.metric in MORE_IS_BETTER:
        ratio = 1 / ratio if ratio else math.inf
    apart = record.min > last.max or record.max < last.min
    if apart and ratio > 1 + smallest:
        return Comparison(record, last, Change.WORSE, f"x {ratio:.3f}, ranges apart")
    if apart and ratio < 1 / (1 + smallest):
        return Comparison(record, last, Change.BETTER, f"x {ratio:.3f}, ranges apart")
    return Comparison(record, last, Change.SAME, f"x {ratio:.3f}, without samples")
