"""The search's measure of gain: accuracy if it separates items, else the loss, else none."""

from random import Random

from pockengine.finetune.contributions import ACCURACY, LOSS, Item, Key
from pockengine.finetune.gains import signal_of
from pockengine.finetune.signal import ENOUGH
from pockengine.finetune.trial import TrialOutcome

ITEMS = [None, *(Item("weight", f"layers.{place}.weight") for place in range(40))]


def trials(accuracy: float, loss: float, seeds: int = 2) -> dict[Key, TrialOutcome]:
    """Return trials of items with true gains of deviation 0.01 and noise of these deviations."""
    random, found = Random(5), {}
    for place, item in enumerate(ITEMS):
        truth = 0.0 if place == 0 else random.gauss(0.01, 0.01)
        for seed in range(seeds):
            right = 0.5 + truth + random.gauss(0, accuracy)
            found[item, seed] = TrialOutcome(
                right, 0.8 - truth + random.gauss(0, loss), 9, 0.1, False
            )
    return found


def test_accuracy_is_used_if_it_has_signal() -> None:
    signal = signal_of(trials(0.002, 0.002))
    assert signal.contributions is not None
    assert signal.contributions.measure == ACCURACY
    assert set(signal.reliabilities) == {ACCURACY}
    assert str(signal).startswith("gains by accuracy (reliability: accuracy 9")


def test_loss_is_used_if_accuracy_is_noise() -> None:
    signal = signal_of(trials(0.05, 0.002))
    assert signal.contributions is not None
    assert signal.contributions.measure == LOSS
    reliability = signal.reliabilities[ACCURACY]
    assert reliability is not None
    assert reliability < ENOUGH


def test_no_measure_is_used_if_all_are_noise() -> None:
    signal = signal_of(trials(0.05, 0.05))
    assert signal.contributions is None
    assert "gains are chance" in str(signal)
    assert "at least 50%" in str(signal)


def test_gains_of_one_seed_are_used_with_unknown_reliability() -> None:
    signal = signal_of(trials(0.05, 0.05, seeds=1))
    assert signal.contributions is not None
    assert signal.contributions.measure == ACCURACY
    assert str(signal) == "gains by accuracy (reliability: accuracy unknown)"
