"""Time several engines in turns, so that machine noise affects all of them equally."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol


class Stepper(Protocol):
    """Anything that trains in steps and returns their times: a Worker, or ours."""

    def step(self, count: int) -> list[float]:
        """Do `count` steps; return the milliseconds of each."""
        ...


@dataclass(frozen=True)
class Timing:
    """Milliseconds of the measured steps: median, extremes, how many there were, and each."""

    median: float
    min: float
    max: float
    n: int
    values: tuple[float, ...] = field(default=(), compare=False)

    @staticmethod
    def of(values: list[float]) -> "Timing":
        """Summarize; ValueError for no values."""
        if not values:
            raise ValueError("no step was measured")
        return Timing(
            statistics.median(values), min(values), max(values), n=len(values), values=tuple(values)
        )


def interleave(
    steppers: Mapping[str, Stepper],
    rounds: int,
    steps: int | Mapping[str, int],
    warm_up: int = 1,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Timing]:
    """Time `steps` steps of each stepper in turn, `rounds` times.

    `steps` may differ by name: slow ones need fewer. `tell` is called with the name of the next
    turn. Each turn starts with `warm_up` untimed steps, because the previous engine's data are in
    the caches. The first turn has a few more, for an engine's one-time work.
    """
    times: dict[str, list[float]] = {name: [] for name in steppers}
    for stepper in steppers.values():
        stepper.step(2 + warm_up)
    for turn in range(rounds):
        for name in list(steppers)[:: 1 if turn % 2 == 0 else -1]:
            tell(f"round {turn + 1} of {rounds}: {name}")
            count = steps if isinstance(steps, int) else steps[name]
            times[name] += steppers[name].step(warm_up + count)[warm_up:]
    return {name: Timing.of(values) for name, values in times.items()}
