"""An attainable memory budget is met, whatever attention block sizes are tried first."""

from dataclasses import replace

import pytest

from pockengine.backends.registry import backend_for
from pockengine.compiler.compile import compile_program
from pockengine.compiler.options import Training
from pockengine.devices import load_device
from pockengine.tests.compiler.small_nets import attention_net

TARGET = replace(backend_for(load_device("rpi4")).target(), attention=0)
"""Attention as a single op has no block sizes to try."""

GRAPH = attention_net(rows=256, heads=4, size=16)


@pytest.mark.parametrize("share", [0.3, 0.4, 0.5, 0.6, 0.7])
def test_a_budget_is_reached_where_a_smaller_one_is(share: float) -> None:
    """At 0.5 and 0.6 the block sizes suggested by the budget exceed it; smaller ones do not."""
    budget = int(share * compile_program(GRAPH, target=TARGET).arena_bytes)
    found = compile_program(GRAPH, Training(memory_budget=budget), target=TARGET)
    assert found.arena_bytes <= budget
