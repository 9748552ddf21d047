"""Pick one of the plans that a backend offers for a problem.

A planner lists the plans of a problem with an estimate of each and passes them to a picker. The
default picks the cheapest estimate; a table of measurements (tuned.py) picks the fastest plan on
the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)


@dataclass(frozen=True)
class PlanCandidate(Generic[P_co]):
    """One plan of a problem, and its estimated cycles.

    The label is the plan's name in tables, unique within its problem; its first word is the method
    ("ROWS 8x3x16", "winograd4 ROWS 14x2x16 in 49").
    """

    label: str
    cycles: float
    plan: P_co

    @property
    def method(self) -> str:
        """The method, without sizes."""
        return self.label.split(" ")[0]


class RatedPlan(Protocol):
    """A plan with a label and an estimate."""

    @property
    def label(self) -> str:
        """See `PlanCandidate`."""

    @property
    def cycles(self) -> float:
        """See `PlanCandidate`."""


E = TypeVar("E", bound=RatedPlan)


def as_candidates(plans: Sequence[E], gain: float = 1.0) -> list[PlanCandidate[E]]:
    """Offer plans; the cycles of methods that must gain a minimum are scaled up."""
    return [PlanCandidate(plan.label, plan.cycles / gain, plan) for plan in plans]


class Picker(Protocol):
    """Chooses between the plans of a problem, whose key is its op and shape."""

    def __call__(self, key: str, candidates: Sequence[PlanCandidate[P]]) -> P:
        """Return the plan to use."""


def cheapest(key: str, candidates: Sequence[PlanCandidate[P]]) -> P:
    """Pick the cheapest estimate; the first of equal ones."""
    return min(candidates, key=lambda candidate: candidate.cycles).plan


def picked(pick: Picker, key: str, candidates: Sequence[PlanCandidate[P]]) -> PlanCandidate[P]:
    """Pick one of the plans by a picker; return the chosen plan."""
    plan = pick(key, candidates)
    return next(candidate for candidate in candidates if candidate.plan is plan)
