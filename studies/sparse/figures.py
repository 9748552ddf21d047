"""The journal's figures by pair and scheme, for tables and plots."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pockengine.studies.sparse.journal import Entry, Journal
from pockengine.studies.sparse.plan import PAIRS
from pockengine.studies.sparse.schemes import SEARCHED

QUIET, CALM = 1.2, 3.0
"""Maximum ratio of the median, and of the longest step time, to the shortest without other load."""


@dataclass(frozen=True)
class SchemeRow:
    """One scheme on one pair: test accuracies by seed, and its costs (None: not measured).

    `extra_bytes` is the train arena beyond inference's, `state_bytes` the optimizer's states.
    """

    scheme: str
    accuracies: tuple[float, ...]
    rate: float
    diverged: int
    extra_bytes: int
    state_bytes: int
    trained: int
    arena_bytes: int
    step: Mapping[str, float] | None
    instructions: int | None

    @property
    def mean(self) -> float:
        """Mean accuracy: rounded once, so that it lies between the minimum and the maximum."""
        return statistics.mean(self.accuracies)

    @property
    def spread(self) -> float:
        """Standard deviation over the seeds; 0 for one."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0

    @property
    def memory_bytes(self) -> int:
        """Extra arena and optimizer states."""
        return self.extra_bytes + self.state_bytes


@dataclass(frozen=True)
class PairFigures:
    """A pair with its rows in the order of their runs, and the facts of its data."""

    pair: str
    facts: Entry
    rows: tuple[SchemeRow, ...]

    def row(self, scheme: str) -> SchemeRow | None:
        """Return a scheme's row, if it was run."""
        return next((row for row in self.rows if row.scheme == scheme), None)


def gather(journal: Journal) -> list[PairFigures]:
    """Return every pair with a finished scheme, in the plan's order."""
    figures = []
    for pair in pairs_of(journal):
        facts = _facts(journal, pair)
        rows = _rows(journal, pair, "final")
        if rows:
            figures.append(PairFigures(pair, facts, rows))
    return figures


def _facts(journal: Journal, pair: str) -> dict[str, Any]:
    """Return the facts of the data used to evaluate the pair's last final runs."""
    judges = _judges(journal, pair, "final")
    facts = [dict(result) for _, result in journal.entries(kind="pair", pair=pair)]
    fitting = [one for one in facts if one.get("test_digest") == judges[-1]] if judges else []
    return next(reversed(fitting or facts), {})


def _judges(journal: Journal, pair: str, purpose: str) -> list[str | None]:
    """Return the evaluations of a pair, in order."""
    runs = journal.entries(kind="trial", pair=pair, purpose=purpose)
    return [key.get("judged_by") for key, _ in runs]


def pairs_of(journal: Journal) -> list[str]:
    """Return the pairs of a journal: the plan's in their order, then others."""
    known = {str(key.get("pair")) for key, _ in journal.entries(kind="pair")}
    planned = [str(pair) for pair in PAIRS]
    return [*(pair for pair in planned if pair in known), *sorted(known - set(planned))]


def criteria_rows(journal: Journal, pair: str) -> tuple[SchemeRow, ...]:
    """Return the rows of the comparison of channel criteria."""
    return _rows(journal, pair, "criteria")


def _rows(journal: Journal, pair: str, purpose: str) -> tuple[SchemeRow, ...]:
    """Return a row for each scheme: of its last rules, with the data of the last run."""
    trials: dict[tuple[str, str], list[tuple[Entry, Entry]]] = {}
    judge = _judges(journal, pair, purpose)[-1:]
    for key, result in journal.entries(kind="trial", pair=pair, purpose=purpose):
        if key.get("judged_by") not in judge:
            continue
        trials.setdefault((key["scheme"], key["rules"]), []).append((key, result))
    latest = {scheme: (rules, runs) for (scheme, rules), runs in trials.items()}
    rows = (_row(journal, pair, name, *latest[name]) for name in latest)
    return tuple(row for row in rows if row is not None)


def _row(
    journal: Journal, pair: str, scheme: str, rules: str, runs: Sequence[tuple[Entry, Entry]]
) -> SchemeRow | None:
    where = {"pair": pair, "scheme": scheme, "rules": rules}
    cost = _last(journal, kind="cost", **where)
    if cost is None:
        return None
    counted = _last(journal, kind="instructions", **where)
    last_train = runs[-1][0]["train"], runs[-1][0]["rate"], runs[-1][0]["epochs"]
    same = [
        result for key, result in runs if (key["train"], key["rate"], key["epochs"]) == last_train
    ]
    return SchemeRow(
        scheme,
        tuple(result["accuracy"] for result in same),
        runs[-1][0]["rate"],
        sum(result["diverged"] for result in same),
        cost["extra_bytes"],
        cost["state_bytes"],
        cost["trained"],
        cost["arena_bytes"],
        _last(journal, kind="step", **where),
        None if counted is None else counted["steps"][-1],
    )


def _last(journal: Journal, **filters: Any) -> Entry | None:
    last = None
    for _, result in journal.entries(**filters):
        last = result
    return last


@dataclass(frozen=True)
class Against:
    """The searched scheme compared with another: points of accuracy, and ratios of costs.

    `memory` (extra arena and states), `whole` (whole arena and states) and `step` are ratios above
    1 if the searched scheme needs less; `arenas` are the bytes of both extra arenas. `step` is None
    if a time is missing, or was measured while others used the machine.
    """

    pair: str
    points: float
    memory: float
    whole: float
    arenas: tuple[int, int]
    step: float | None


def against(figures: Sequence[PairFigures], other: str) -> list[Against]:
    """Compare the searched scheme with another on all pairs where both were run."""
    compared = []
    for one in figures:
        ours, theirs = one.row(SEARCHED), one.row(other)
        if ours is None or theirs is None:
            continue
        step = None
        quiet = [time for time in (ours.step, theirs.step) if time and not disturbed(time)]
        if len(quiet) == 2:
            step = quiet[1]["median"] / quiet[0]["median"]
        compared.append(
            Against(
                one.pair,
                100 * (ours.mean - theirs.mean),
                theirs.memory_bytes / max(1, ours.memory_bytes),
                (theirs.arena_bytes + theirs.state_bytes) / (ours.arena_bytes + ours.state_bytes),
                (ours.extra_bytes, theirs.extra_bytes),
                step,
            )
        )
    return compared


def disturbed(step: Mapping[str, Any]) -> bool:
    """Whether other load on the machine disturbed the timing of a step: its times vary widely."""
    least = step["low"]
    return bool(step["median"] > QUIET * least or step["high"] > CALM * least)


def geometric(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return statistics.geometric_mean(values)
