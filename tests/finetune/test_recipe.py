"""Recipes: a data order fixed by the seed that covers all examples, and scheduled rates."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pockengine.compiler.optim import AdamW, Sgd
from pockengine.errors import FinetuneError
from pockengine.finetune.recipe import Recipe, batches, order, settings_of


@given(st.integers(1, 50), st.integers(1, 20), st.integers(0, 3))
def test_every_epoch_has_every_example(count: int, batch: int, epoch: int) -> None:
    steps = batches(count, batch, epoch, seed=1)

    assert steps.shape == (-(-count // batch), batch)
    assert set(steps.flat) == set(range(count))
    assert np.array_equal(steps.ravel()[:count], order(count, epoch, seed=1))


def test_orders_differ_between_epochs_and_seeds() -> None:
    orders = {tuple(order(30, epoch, seed)) for epoch in range(3) for seed in range(3)}

    assert len(orders) == 9


def test_rate_warms_up_and_decays_as_a_cosine() -> None:
    rates = Recipe(0.1, 1, warmup=0.1).rates(100)
    found = [rates(step) for step in range(1, 101)]

    assert found[:10] == pytest.approx([0.01 * step for step in range(1, 11)])
    assert max(found) == pytest.approx(0.1)
    assert all(a > b > 0 for a, b in pairwise(found[10:]))
    assert Recipe(0.1, 1, warmup=0.99).rates(1)(1) == pytest.approx(0.1)


@pytest.mark.parametrize(
    "wrong", [{"rate": -1.0}, {"rate": float("nan")}, {"epochs": 0}, {"warmup": 1.0}]
)
def test_impossible_recipes_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(FinetuneError, match="the rate must be at least 0"):
        Recipe(**{"rate": 0.1, "epochs": 1, **wrong})
    with pytest.raises(FinetuneError, match="unknown schedule 'steps'"):
        Recipe(0.1, 1, schedule="steps")


def test_optimizer_text_has_only_unusual_settings() -> None:
    assert settings_of(AdamW()) == "AdamW()"
    assert settings_of(AdamW(weight_decay=0.0)) == "AdamW(weight_decay=0.0)"
    assert settings_of(Sgd(momentum=0.9)) == "Sgd(momentum=0.9)"
