"""Random programs in PyTorch; the campaign finds an injected bug."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest

from pockengine.tests.fuzz import campaign
from pockengine.tests.fuzz.campaign import Draws, Tally, run_campaign
from pockengine.tests.fuzz.compare import Imported, Results
from pockengine.tests.fuzz.program import Program, draw
from pockengine.tests.fuzz.torch_programs import TorchLanguage


def test_programs_are_deterministic_in_the_seed() -> None:
    first, again = (draw(TorchLanguage(), 7, 8) for _ in range(2))
    assert first.source() == again.source()
    assert all(np.array_equal(first.leaves[n].data, again.leaves[n].data) for n in first.leaves)


def test_wrong_gradients_are_found_and_shrunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Tanh(TorchLanguage):
        templates = ("{new} = torch.tanh({f})", "{new} = {f} * {c}", "{new} = {f} + 1")

    right = campaign.METHODS["graph"]

    def wrong(imported: Imported) -> Results:
        has_tanh = any(node.op == "tanh" for node in imported.graph.nodes)
        results = right(imported)
        return [
            [loss, *(g * 1.1 for g in grads)] if has_tanh else [loss, *grads]
            for loss, *grads in results
        ]

    monkeypatch.setitem(campaign.METHODS, "graph", wrong)
    tally = run_campaign(Tanh(), 8, Draws(size=5, batch=4))
    assert tally.outcomes["wrong"] >= 2
    shortest = min((verdict.program for verdict in tally.faults), key=lambda p: len(p.body))
    assert len(shortest.body) == 1
    assert "tanh" in shortest.body[0]


def test_untraceable_programs_are_dropped_from_the_batch() -> None:
    class Deciding(TorchLanguage):
        templates = ("{new} = {f} * 2 if {f}.sum() > 0 else {f}", "{new} = {f} + 1")
        batches: ClassVar[list[int]] = []

        def graph(self, programs: Sequence[Program]) -> Imported:
            self.batches.append(len(programs))
            return super().graph(programs)

    tally = run_campaign(Deciding(), 6, Draws(size=1, batch=6))
    refused = tally.outcomes["refused"]
    assert tally.outcomes == {"refused": refused, "passed": 6 - refused}
    assert 0 < refused < 6
    assert Deciding.batches == list(range(6, 5 - refused, -1))
    assert "decides by the values in a tensor" in next(iter(tally.refusals))


def test_interrupted_campaigns_report_finished_batches() -> None:
    def stop(tally: Tally) -> None:
        raise KeyboardInterrupt

    tally = run_campaign(TorchLanguage(), 100, Draws(size=2, batch=4), progress=stop)
    assert tally.outcomes.total() == 4


@pytest.mark.parametrize("programs", [24, pytest.param(48, marks=pytest.mark.nightly)])
def test_programs_pass_or_are_refused(programs: int) -> None:
    tally = run_campaign(TorchLanguage(), programs, Draws(100000, batch=12), code_every=2)
    assert not [verdict.program.source() for verdict in tally.faults]
    assert tally.outcomes["passed"] >= programs * 5 // 6
