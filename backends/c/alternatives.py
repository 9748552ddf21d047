"""Alternatives of the C backend: the plan of each product and convolution, and the runner-up.

A plan computes directly, from windows of the image (the im2col of this backend, copied only if that
pays), or by Winograd's method in tiles of 2 x 2 or 4 x 4. The runner-up is the cheapest plan of
another method, or else the next plan of the same one. Cycles are those used for comparison: they
are scaled up for Winograd's method (conv.py).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pockengine.backends.c.backend import CBackend
from pockengine.backends.picking import P, Picker, PlanCandidate, picked
from pockengine.compiler.ir import Node
from pockengine.compiler.ir.key import node_key
from pockengine.devices.schema import Device


@dataclass(frozen=True)
class Alternative:
    """A problem, `calls` times in a step, with the chosen plan and the runner-up.

    Without another plan, `runner_up` is empty and its cycles are 0.
    """

    problem: str
    calls: int
    plan: str
    cycles: float
    runner_up: str
    runner_up_cycles: float


class _Recorder:
    """A picker that delegates to another, and records its problems."""

    def __init__(self, pick: Picker) -> None:
        self.pick = pick
        self.calls: Counter[str] = Counter()
        self.found: dict[str, Alternative] = {}

    def __call__(self, key: str, candidates: Sequence[PlanCandidate[P]]) -> P:
        chosen = picked(self.pick, key, candidates)
        others = [each for each in candidates if each is not chosen]
        of_others = [each for each in others if each.method != chosen.method]
        second = min(of_others or others, key=lambda each: each.cycles, default=None)
        self.found[key] = Alternative(
            key,
            calls=0,
            plan=chosen.label,
            cycles=chosen.cycles,
            runner_up="" if second is None else second.label,
            runner_up_cycles=0.0 if second is None else second.cycles,
        )
        self.calls[key] += 1
        return chosen.plan


def list_alternatives(nodes: Sequence[Node], device: Device, pick: Picker) -> list[Alternative]:
    """List the problems of a step's nodes, most cycles first."""
    recorder = _Recorder(pick)
    for same, calls in Counter(map(node_key, nodes)).items():
        before = recorder.calls.copy()
        node = next(node for node in nodes if node_key(node) == same)
        CBackend(device, pick=recorder).choose(node)
        for key, count in (recorder.calls - before).items():
            recorder.calls[key] += count * (calls - 1)
    rows = [replace(row, calls=recorder.calls[key]) for key, row in recorder.found.items()]
    return sorted(rows, key=lambda row: -row.calls * row.cycles)
