"""Rate schedules agree with PyTorch's."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as theirs

from pockengine.backends.rate_schedule import RateSchedule

RATE, STEPS = 0.4, 12

CASES: dict[str, tuple[dict[str, Any], Callable[[Any], Any]]] = {
    "constant": ({}, lambda o: theirs.ConstantLR(o, 1.0)),
    "linear": ({}, lambda o: theirs.LinearLR(o, 1.0, 0.0, STEPS)),
    "cosine": ({}, lambda o: theirs.CosineAnnealingLR(o, STEPS)),
    "polynomial": ({"factor": 1.7}, lambda o: theirs.PolynomialLR(o, STEPS, 1.7)),
    "exponential": ({"factor": 0.8}, lambda o: theirs.ExponentialLR(o, 0.8)),
    "step": ({"factor": 0.3, "period": 4}, lambda o: theirs.StepLR(o, 4, 0.3)),
    "multistep": (
        {"factor": 0.3, "milestones": (2, 7)},
        lambda o: theirs.MultiStepLR(o, [2, 7], 0.3),
    ),
    "restarts": (
        {"factor": 2, "period": 3},
        lambda o: theirs.CosineAnnealingWarmRestarts(o, 3, 2),
    ),
    "cyclic": (
        {"factor": 0.1, "period": 4},
        lambda o: theirs.CyclicLR(o, 0.1 * RATE, RATE, 4, cycle_momentum=False),
    ),
    "one-cycle": (
        {"factor": 0.3},
        lambda o: theirs.OneCycleLR(o, RATE, STEPS, pct_start=0.3, cycle_momentum=False),
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_schedule_is_that_of_torch(kind: str) -> None:
    numbers, make = CASES[kind]
    schedule = RateSchedule(kind, RATE, STEPS, **numbers)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], RATE)
    scheduler = make(optimizer)
    for step in range(1, STEPS + 1):
        assert schedule(step) == pytest.approx(scheduler.get_last_lr()[0], rel=1e-6)
        optimizer.step()
        scheduler.step()
