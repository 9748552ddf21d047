"""Convert a user's limits to a search budget: modelled costs, calibrated by measurements.

Memory is exact. Time of a board is modelled cycles at its nominal clock. Time of this machine, and
instructions, are measured for two schemes, the head alone and everything, and interpolated linearly
over the modelled cycles. The found schemes are then measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pockengine.compiler.sparse import Scheme, preset
from pockengine.errors import FinetuneError
from pockengine.finetune.candidates import SchemeCandidate
from pockengine.finetune.cost import CostModel
from pockengine.finetune.cost_measured import LinearFit, count_instructions, fit_line
from pockengine.finetune.cost_measured import measure_milliseconds as measure_time
from pockengine.finetune.search import Budget, Point
from pockengine.finetune.space import scheme_of

HOST = "host"
TRIES = 5
"""Maximum number of schemes measured to find one within the instruction limit."""


@dataclass(frozen=True)
class SearchLimits:
    """Bytes beyond inference, milliseconds of a step, instructions of a step of one thread."""

    memory_bytes: float | None = None
    milliseconds: float | None = None
    instructions: float | None = None


def budget_of(limits: SearchLimits, costs: CostModel) -> Budget:
    """Return the search budget for limits on a device; FinetuneError if it cannot be determined."""
    cycles = work = None
    if limits.milliseconds is not None:
        cycles = _cycles(limits.milliseconds, costs)
    if limits.instructions is not None:
        ends = _ends(costs)
        counts = [float(_count(costs, scheme)) for scheme in ends]
        if counts[0] > limits.instructions:
            raise FinetuneError(
                f"no scheme fits {limits.instructions:,.0f} instructions: the cheapest, the head "
                f"alone, takes {counts[0]:,.0f} on {costs.device.name}"
            )
        low, high = (costs.cost(scheme).work for scheme in ends)
        work = fit_line((low, counts[0]), (high, counts[1])).modelled(limits.instructions)
    memory = None if limits.memory_bytes is None else int(limits.memory_bytes)
    return Budget(memory, cycles, work)


def _cycles(milliseconds: float, costs: CostModel) -> float:
    """Return the modelled cycles for a time."""
    if costs.device.name != HOST:
        if not costs.device.mhz:
            raise FinetuneError(
                f"{costs.device.name} has no clock in its file (mhz), so cycles are no time; "
                "limit --instructions or --memory"
            )
        return milliseconds * 1e3 * costs.device.mhz
    return _host_line(costs).modelled(milliseconds)


def _host_line(costs: CostModel) -> LinearFit:
    low, high = ((costs.cost(scheme).cycles, _time(costs, scheme)) for scheme in _ends(costs))
    return fit_line(low, high)


def _ends(costs: CostModel) -> tuple[Scheme, Scheme]:
    return scheme_of(costs.graph, ()), preset("full", costs.graph)


def _count(costs: CostModel, scheme: Scheme) -> int:
    return count_instructions(costs.graph, costs.training(scheme), costs.device)


def _time(costs: CostModel, scheme: Scheme) -> float:
    return measure_time(costs.graph, costs.training(scheme), costs.device)


def tightened(budget: Budget, best: Point, limits: SearchLimits, costs: CostModel) -> Budget | None:
    """Return a lower budget if the best point exceeds the limit on instructions, else None.

    Between its two ends the line is up to a tenth too low (MCUNet on rpi4). Another search within
    the lower budget costs little, because evaluated schemes are remembered.
    """
    if limits.instructions is None or budget.work is None:
        return None
    counted = _count(costs, scheme_of(costs.graph, best.items))
    if counted <= limits.instructions:
        return None
    return replace(budget, work=min(budget.work, best.cost.work) * limits.instructions / counted)


def first_within(
    candidates: Sequence[SchemeCandidate], limits: SearchLimits, costs: CostModel
) -> tuple[SchemeCandidate, str]:
    """Return the first candidate within the limits, and its measurements.

    Instructions are counted. Time is measured on this machine and only reported, as it varies
    between runs. FinetuneError if the first few exceed the limit on instructions.
    """
    if limits.instructions is None:
        if limits.milliseconds is None or costs.device.name != HOST:
            return candidates[0], ""
        taken = _time(costs, candidates[0].scheme)
        return candidates[0], f"{taken:.2f} ms a step, measured"
    counts = []
    for candidate in candidates[:TRIES]:
        counts.append(_count(costs, candidate.scheme))
        if counts[-1] <= limits.instructions:
            return candidate, f"{counts[-1]:,} instructions a step, counted"
    raise FinetuneError(
        f"the best {len(counts)} schemes take {min(counts):,} to {max(counts):,} instructions, the "
        f"limit is {limits.instructions:,.0f}; the model was too low by "
        f"{min(counts) / limits.instructions - 1:.1%}: lower --instructions by that"
    )
