"""Signal: noise is recognized, whether it comes from seeds or from validation examples."""

from collections.abc import Mapping
from random import Random
from statistics import fmean, variance

import pytest

from pockengine.finetune.contributions import LOSS, Item, Key, contributions_of
from pockengine.finetune.shrinkage import reliability
from pockengine.finetune.signal import ENOUGH, Noise, noise_of, reliability_of
from pockengine.finetune.trial import TrialOutcome
from pockengine.finetune.verdict import PARTS

ITEMS, SEEDS = 60, 2


def item(place: int) -> Item:
    return Item("weight", f"layers.{place}.weight")


def measured(
    truth: Mapping[int, float], seeds: float, examples: float, random: Random
) -> dict[Key, TrialOutcome]:
    """Return trials of items with known gains, and noise from seeds and validation examples."""
    trials: dict[Key, TrialOutcome] = {}
    for place in (None, *truth):
        luck = [random.gauss(0, examples) for _ in range(PARTS)]  # the same for every seed
        for seed in range(SEEDS):
            chance = random.gauss(0, seeds) + (0.0 if place is None else truth[place])
            parts = tuple(0.5 + chance + each for each in luck)
            accuracy = fmean(parts)
            key = None if place is None else item(place)
            trials[key, seed] = TrialOutcome(accuracy, 1 - accuracy, 9, 0.1, False, parts)
    return trials


@pytest.mark.parametrize(("seeds", "examples"), [(0.02, 0.0), (0.0, 0.04), (0.02, 0.04)])
def test_pure_noise_has_no_signal(seeds: float, examples: float) -> None:
    found = [
        reliability(contributions_of(measured(dict.fromkeys(range(ITEMS), 0.0), *noise)))
        for noise in ((seeds, examples, Random(seed)) for seed in range(20))
    ]
    assert all(each is not None and each < ENOUGH for each in found)
    assert fmean(each for each in found if each is not None) < 0.15


@pytest.mark.parametrize(("seeds", "examples"), [(0.02, 0.0), (0.0, 0.04), (0.02, 0.04)])
def test_reliability_is_the_share_of_true_variance(seeds: float, examples: float) -> None:
    random = Random(3)
    truth = {place: random.gauss(0.02, 0.02) for place in range(ITEMS)}
    contributions = contributions_of(measured(truth, seeds, examples, random))
    chance = seeds**2 / SEEDS + examples**2 / PARTS
    expected = variance(truth.values()) / (variance(truth.values()) + chance)

    assert reliability(contributions) == pytest.approx(expected, abs=0.15)


def test_shared_examples_hide_their_noise_from_seeds() -> None:
    """Seeds agree because they share the examples; only the parts show the noise of examples."""
    trials = measured(dict.fromkeys(range(ITEMS), 0.0), 0.0, 0.04, Random(0))
    blind = {key: TrialOutcome(one.score, one.loss, 9, 0.1, False) for key, one in trials.items()}
    assert reliability(contributions_of(blind)) == pytest.approx(1.0)
    found = reliability(contributions_of(trials))
    assert found is not None
    assert found < ENOUGH


def test_noise_is_unexplained_by_item_and_seed() -> None:
    def of(rows: list[list[float]]) -> Noise | None:
        return noise_of([[[value] for value in row] for row in rows])

    explained, unexplained = of([[0.1, 0.3], [0.2, 0.4], [0.5, 0.7]]), of([[1.0, 0.0], [0.0, 1.0]])
    assert explained is not None
    assert unexplained is not None
    assert explained.seeds == pytest.approx(0.0)
    assert unexplained == Noise(1.0)
    assert unexplained.of_mean(2) == 0.5
    assert of([[0.1, 0.2]]) is None
    assert of([[0.1], [0.2]]) is None
    assert of([]) is None


def test_lower_loss_is_a_gain_and_divergence_is_a_large_loss() -> None:
    trials: dict[Key, TrialOutcome] = {
        (None, 0): TrialOutcome(0.5, 0.8, 9, 0.1, False),
        (item(0), 0): TrialOutcome(0.4, 0.6, 9, 0.1, False),
        (item(1), 0): TrialOutcome(0.6, float("nan"), 9, 0.1, True),
    }
    gains = contributions_of(trials, LOSS).gains
    assert [gain.mean for gain in gains.values()] == pytest.approx([0.2, -0.8])


def test_reliability_is_between_0_and_1() -> None:
    assert reliability_of(2.0, 1.0) == 0
    assert reliability_of(0.25, 1.0) == 0.75
    assert reliability_of(0.0, 0.0) == 0
