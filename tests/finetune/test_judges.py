"""Judges: the displayed form of a score, and its form in a table."""

import math

import pytest

from pockengine.errors import FinetuneError
from pockengine.finetune.judges import ACCURACY, HELD_OUT, judge_named


def test_scores_are_readable() -> None:
    assert ACCURACY.described(0.845) == "84.50 %"
    assert ACCURACY.spread(0.02) == "2.00"
    assert HELD_OUT.cell(-2.25) == "2.2500"
    assert HELD_OUT.spread(0.02) == "0.0200"
    assert HELD_OUT.described(-math.log(20)) == "a loss of 2.9957 (perplexity 20)"


@pytest.mark.parametrize("score", [-2.5, -math.inf])
def test_losses_round_trip(score: float) -> None:
    row = HELD_OUT.written(score)

    assert row == {"held_out_loss": None if math.isinf(score) else 2.5}
    assert HELD_OUT.read(row) == score


@pytest.mark.parametrize(
    ("judge", "value"),
    [(ACCURACY, 1.5), (ACCURACY, -0.1), (HELD_OUT, -1.0), (HELD_OUT, math.inf)],
)
def test_invalid_scores_are_refused(judge, value: float) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="out of its range"):
        judge.read({judge.key: value})


def test_error_names_an_unknown_judge() -> None:
    assert judge_named("held-out loss") is HELD_OUT
    with pytest.raises(FinetuneError, match="unknown judge 'taste'; known: accuracy, held-out"):
        judge_named("taste")
