"""If a scheme is worse than full, another is searched for within more memory."""

import pytest

from pockengine.compiler.sparse import Scheme
from pockengine.finetune.race import Standing
from pockengine.finetune.recipe import Recipe
from pockengine.studies.sparse.finding import first_close

WINNERS = {0.2: 0.80, 0.3: 0.84, 0.5: 0.85}
"""Accuracy of the winner, by the share of full's memory."""


@pytest.mark.parametrize(("least", "share"), [(0.8, 0.2), (0.83, 0.3), (0.845, 0.5), (0.9, 0.5)])
def test_memory_grows_until_the_winner_is_close_to_full(least: float, share: float) -> None:
    tried = []

    def race_within(share: float) -> Standing:
        tried.append(share)
        return Standing(Scheme(f"{share}", ()), Recipe(0.01, 1, 0), (WINNERS[share],))

    found, best = first_close(list(WINNERS), race_within, least)

    assert found == share
    assert best.scheme.name == f"{share}"
    assert tried == [one for one in WINNERS if one <= share]
