"""Report of `backend="auto"`: the cost of a step per backend, the choice, and the reason.

It is stored in the artifact's manifest, and printed by `pockengine inspect`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

MARGIN = 0.03
"""Minimum gain over the device's own backend, as a fraction of a step's time; less is noise."""

MEASURED = "ms a step, measured"
MODELLED = "modelled cycles a step"
UNITS = (MEASURED, MODELLED)


@dataclass(frozen=True)
class BackendCandidate:
    """A backend with the cost of a step, or with the reason why it was excluded."""

    backend: str
    cost: float | None = None
    left_out: str = ""


@dataclass(frozen=True)
class Switching:
    """The candidates in the device's order, its own backend first, and the chosen one.

    Costs are in `unit`. Measured costs are medians of interleaved steps.
    """

    chosen: str
    unit: str
    candidates: tuple[BackendCandidate, ...]

    @property
    def runner_up(self) -> BackendCandidate | None:
        """The second best; None if all others were excluded."""
        others = [each for each in self.candidates if each.backend != self.chosen]
        return _cheapest(others)

    @property
    def reason(self) -> str:
        """Why this candidate was chosen."""
        mine, other = _cost(self.chosen, self.candidates), self.runner_up
        if other is None or other.cost is None:
            return f"{self.chosen}: no other backend can be taken"
        if other.cost < mine:
            return (
                f"{self.chosen}: it is the device's own, and {other.backend} gains less than "
                f"{100 * MARGIN:.0f} %"
            )
        return f"{self.chosen}: {other.backend}, the runner-up, takes {other.cost / mine:.2f}x"

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        lines = [f"backend {self.reason}"]
        for each in self.candidates:
            cost = each.left_out if each.cost is None else f"{each.cost:,.3f} {self.unit}"
            lines.append(f"  {each.backend}: {cost}")
        return lines

    def table(self) -> dict[str, Any]:
        """Return the report as a table for the manifest."""
        return {
            "chosen": self.chosen,
            "reason": self.reason,
            "unit": self.unit,
            "candidates": [asdict(each) for each in self.candidates],
        }


def settle(unit: str, candidates: Sequence[BackendCandidate]) -> Switching:
    """Choose the cheapest, but the first (the device's own) unless the gain exceeds the margin.

    ValueError if all were excluded.
    """
    best = _cheapest(candidates)
    if best is None or best.cost is None:
        raise ValueError("every candidate was left out")
    own = candidates[0]
    if own.cost is not None and best.cost >= own.cost * (1 - MARGIN):
        best = own
    return Switching(best.backend, unit, tuple(candidates))


def read_switching(table: Any) -> Switching | None:
    """Read the result of `Switching.table`; ValueError if malformed. None stays None."""
    if table is None:
        return None
    rows = table.get("candidates") if isinstance(table, dict) else None
    if not isinstance(rows, list) or table.get("unit") not in UNITS:
        raise ValueError("switching must be a table with candidates and a known unit")
    candidates = tuple(map(_read_candidate, rows))
    chosen = table.get("chosen")
    if chosen not in [each.backend for each in candidates if each.cost is not None]:
        raise ValueError("switching must have chosen one of its candidates")
    return Switching(chosen, table["unit"], candidates)


def _read_candidate(row: Any) -> BackendCandidate:
    table: Mapping[str, Any] = row if isinstance(row, dict) else {}
    backend, cost, left_out = (table.get(key) for key in ("backend", "cost", "left_out"))
    if not isinstance(backend, str) or not isinstance(left_out, str):
        raise ValueError("a candidate must have texts: backend, left_out")
    if cost is None:
        return BackendCandidate(backend, None, left_out)
    if type(cost) not in (int, float) or not (math.isfinite(cost) and cost >= 0):
        raise ValueError("the cost of a candidate must be a number from 0 on")
    return BackendCandidate(backend, float(cost), left_out)


def _cheapest(candidates: Sequence[BackendCandidate]) -> BackendCandidate | None:
    """Return the cheapest that was not excluded; the first of equal ones."""
    known = [each for each in candidates if each.cost is not None]
    return min(known, key=lambda each: each.cost or 0.0, default=None)


def _cost(backend: str, candidates: Sequence[BackendCandidate]) -> float:
    return next(each.cost or 0.0 for each in candidates if each.backend == backend)
