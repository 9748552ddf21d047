"""Random programs of PyTorch, and that the campaign finds a fault that is put in."""

import numpy as np
import pytest

from pockengine.tests.fuzz import campaign
from pockengine.tests.fuzz.campaign import run_campaign
from pockengine.tests.fuzz.compare import Imported, Results
from pockengine.tests.fuzz.program import draw
from pockengine.tests.fuzz.torch_programs import TorchLanguage


def test_a_seed_always_draws_the_same_program() -> None:
    first, again = (draw(TorchLanguage(), 7, 8) for _ in range(2))
    assert first.source() == again.source()
    assert all(np.array_equal(first.leaves[n].data, again.leaves[n].data) for n in first.leaves)


def test_a_wrong_gradient_is_found_and_its_program_made_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Tanh(TorchLanguage):
        templates = ("{new} = torch.tanh({f})", "{new} = {f} * {c}", "{new} = {f} + 1")

    right = campaign.WAYS["graph"]

    def wrong(imported: Imported) -> Results:
        has_tanh = any(node.op == "tanh" for node in imported.graph.nodes)
        results = right(imported)
        return [
            [loss, *(g * 1.1 for g in grads)] if has_tanh else [loss, *grads]
            for loss, *grads in results
        ]

    monkeypatch.setitem(campaign.WAYS, "graph", wrong)
    tally = run_campaign(Tanh(), 8, seed=0, size=5, batch=4)
    assert tally.outcomes["wrong"] >= 2
    shortest = min((verdict.program for verdict in tally.faults), key=lambda p: len(p.body))
    assert len(shortest.body) == 1
    assert "tanh" in shortest.body[0]
