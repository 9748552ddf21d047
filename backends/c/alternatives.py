"""What the C backend chose between: of each product and convolution the plan, and the runner-up.

A plan computes directly, from windows of the image (the im2col of this backend, copied only where
that pays), or by Winograd's method in tiles of 2 x 2 or 4 x 4. The runner-up is the cheapest plan
of another method, or where there is no other method the next plan of the same one. Cycles are as
the plans were compared: those of Winograd's method count for more than they are (conv.py).
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
    """A problem, `calls` times in a step, with the plan that is taken and the runner-up.

    `runner_up` is empty, and its cycles are 0, where there is no other plan.
    """

    problem: str
    calls: int
    plan: str
    cycles: float
    runner_up: str
    runner_up_cycles: float


class _Recorder:
    """A picker that lets another one pick, and keeps what it was asked for."""

    def __init__(self, pick: Picker) -> None:
        self.pick = pick
        self.calls: Counter[str] = Counter()
        self.found: dict[str, Alternative] = {}

    def __call__(self, key: str, candidates: Sequence[PlanCandidate[P]]) -> P:
        chosen = picked(self.pick, key, candidates)
        others = [each for each in candidates if each is not chosen]
        of_others = [each for each in others if each.method != chosen.method]
        second = min(of_others or others, key=lambda each: each.cycles, default=None)
        runner_up = ("", 0.0) if second is None else (second.label, second.cycles)
        self.found[key] = Alternative(key, 0, chosen.label, chosen.cycles, *runner_up)
        self.calls[key] += 1
        return chosen.plan


def list_alternatives(nodes: Sequence[Node], device: Device, pick: Picker) -> list[Alternative]:
    """Return the problems of a step's nodes, those that take most cycles first."""
    recorder = _Recorder(pick)
    for same, calls in Counter(map(node_key, nodes)).items():
        before = recorder.calls.copy()
        node = next(node for node in nodes if node_key(node) == same)
        CBackend(device, pick=recorder).choose(node)
        for key, count in (recorder.calls - before).items():
            recorder.calls[key] += count * (calls - 1)
    rows = [replace(row, calls=recorder.calls[key]) for key, row in recorder.found.items()]
    return sorted(rows, key=lambda row: -row.calls * row.cycles)
