"""Random graphs and trainings: lowering and memory planning change no results."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pockengine.compiler.compile import compile_program
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.program import Entry
from pockengine.errors import CompileError
from pockengine.tests.compiler import lowered_training
from pockengine.tests.compiler.in_place import run_in_place
from pockengine.tests.compiler.lowered_training import TARGET, Arrays, check_training
from pockengine.tests.compiler.random_nets import draw_net
from pockengine.tests.compiler.random_trainings import draw_training

EXAMPLES = 150


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_lowered_updates_match_the_graph(seed: int) -> None:
    graph = draw_net(seed)
    check_training(graph, draw_training(graph, seed), seed)


@pytest.mark.parametrize("seed", range(20))
def test_wrong_updates_are_reported(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tolerance for rounding must not hide an error of one percent of each weight."""
    honest = run_in_place

    def wrong(entry: Entry, inputs: Arrays, state: Arrays) -> Arrays:
        outputs = honest(entry, inputs, state)
        for array in state.values():
            if array.dtype == np.float32:
                array[...] = 1.01 * array + 0.01
        return outputs

    monkeypatch.setattr(lowered_training, "run_in_place", wrong)
    graph = draw_net(seed)
    with pytest.raises(AssertionError, match="differs by"):
        check_training(graph, draw_training(graph, seed), seed)


@pytest.mark.parametrize("seed", range(20))
def test_memory_budget_preserves_updates(seed: int) -> None:
    graph = draw_net(seed, parts=2)
    training = Training(optimizer=Sgd(momentum=0.9), scheme=draw_training(graph, seed).scheme)
    free = compile_program(graph, training, target=TARGET).arena_bytes
    for share in (0.95, 0.8):
        try:
            tight = replace(training, memory_budget=int(share * free))
            check_training(graph, tight, seed)
        except CompileError as error:
            assert "bytes" in str(error)  # the least that can be reached  # noqa: PT017
