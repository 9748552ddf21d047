"""Schedules of TVM's kernels: every plan gives the results of plain loops."""

import numpy as np
import pytest

from pockengine.backends.tvm.schedules import ReductionSchedule, scheduled
from pockengine.tests.backends.tvm.kernels import FUNCTIONS, run

PLANS = [
    None,
    ReductionSchedule(8, 16),
    ReductionSchedule(4, 32),
    ReductionSchedule(1, 8),
    ReductionSchedule(4, 8, plane=True),
]
PLANS += [ReductionSchedule(4, 32, plane=True, padded=False), ReductionSchedule(0, 16)]


PLAIN = {"softmax", "copies of a scalar"}


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.label if plan else "usual")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_schedule_computes_the_same(name: str, plan: ReductionSchedule | None) -> None:
    function = FUNCTIONS[name]
    expected = run(function)
    np.testing.assert_allclose(run(scheduled(function, 4, plan)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in PLAIN])
def test_each_kind_of_kernel_has_a_schedule(name: str) -> None:
    function = FUNCTIONS[name]
    assert scheduled(function, 4).script() != function.script()
