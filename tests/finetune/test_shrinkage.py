"""Noisy gains shrink towards the mean of similar items, in proportion to their noise."""

from random import Random
from statistics import fmean, stdev

import pytest

from pockengine.finetune.contributions import (
    Contributions,
    Gain,
    Item,
    Key,
    contributions_of,
)
from pockengine.finetune.shrinkage import shrunk
from pockengine.finetune.signal import Noise
from pockengine.finetune.trial import TrialOutcome


def weight(name: int, share: float = 1.0) -> Item:
    return Item("weight", f"layers.{name}.weight", share, "" if share == 1 else "magnitude")


def table(gains: dict[Item, Gain], noise: float | None = 0.04) -> Contributions:
    return Contributions(0.5, gains, None if noise is None else Noise(noise))


def error(found: Contributions, truth: dict[Item, float]) -> float:
    return fmean((found.gains[item].mean - gain) ** 2 for item, gain in truth.items())


def outcome(accuracy: float) -> TrialOutcome:
    return TrialOutcome(accuracy, 0.0, 1, 0.0, False)


@pytest.mark.parametrize("noise", [0.002, 0.02, 0.05])
@pytest.mark.parametrize("shared", [0.0, -0.1])
def test_shrunk_gains_are_nearer_to_the_truth(noise: float, shared: float) -> None:
    random = Random(1)
    truth = {
        weight(i, share): random.gauss(0.02 * share, 0.01) for i in range(60) for share in (0.5, 1)
    }
    trials: dict[Key, TrialOutcome] = {
        (None, seed): outcome(0.5 + shared * seed) for seed in (0, 1)
    }
    for item, gain in truth.items():
        trials |= {(item, s): outcome(0.5 + random.gauss(gain, noise)) for s in (0, 1)}
    measured = contributions_of(trials)
    assert measured.noise is not None
    assert measured.noise.seeds == pytest.approx(noise**2, rel=0.5)
    truth = {item: gain - shared / 2 for item, gain in truth.items()}
    assert error(shrunk(measured), truth) < error(measured, truth)


def test_pure_noise_becomes_the_mean_of_similar_items() -> None:
    gains = {weight(i): Gain(0.01 * (-1) ** i, 0.2, 2) for i in range(10)}
    gains |= {weight(i, 0.5): Gain(0.03 + 0.01 * (-1) ** i, 0.2, 2) for i in range(10)}
    found = shrunk(table(gains)).gains
    assert [found[weight(i)].mean for i in range(10)] == pytest.approx([0.0] * 10)
    assert [found[weight(i, 0.5)].mean for i in range(10)] == pytest.approx([0.03] * 10)


def test_gain_among_losses_stays_a_gain() -> None:
    gains = {weight(i): Gain(0.01 if i == 3 else -0.02, 0.02, 2) for i in range(8)}
    found = shrunk(table(gains, 0.0002)).gains
    assert 0 < found[weight(3)].mean < 0.01
    assert found[weight(0)].mean == pytest.approx(-0.02 * found[weight(3)].mean / 0.01)


def test_more_seeds_shrink_less() -> None:
    gains = {weight(i): Gain(0.02 * i, 0.02, 2 + 6 * (i == 3)) for i in range(4)}
    found = shrunk(table(gains, 0.0004)).gains
    moved = [abs(gain.mean - 0.02 * i) for i, gain in enumerate(found.values())]
    assert moved[3] < moved[0]
    assert moved[1] < moved[0]


def test_exact_or_single_measurements_do_not_shrink() -> None:
    exact = table({weight(i): Gain(0.1 * i, 0.0, 3) for i in range(4)}, 0.0)
    once = table({weight(i): Gain(0.1 * i, 0.0, 1) for i in range(4)}, None)
    alone = table({weight(0): Gain(0.1, 0.1, 2)})
    for one in (exact, once, alone):
        assert [gain.mean for gain in shrunk(one).gains.values()] == pytest.approx(
            [gain.mean for gain in one.gains.values()]
        )


def test_order_within_a_group_is_preserved() -> None:
    random = Random(2)
    gains = {weight(i): Gain(random.gauss(0, 0.03), 0.02, 2) for i in range(20)}
    found = shrunk(table(gains, 0.0004)).gains
    before = sorted(gains, key=lambda item: gains[item].mean)
    assert before == sorted(found, key=lambda item: found[item].mean)
    assert stdev(gain.mean for gain in found.values()) < stdev(g.mean for g in gains.values())
