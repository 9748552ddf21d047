"""Rates: the same number of trials for every scheme, evaluated without the test set."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pockengine.compiler.sparse import Scheme, preset
from pockengine.errors import FinetuneError
from pockengine.finetune.rates import tune_rate
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Examples
from pockengine.finetune.trial import TrialOutcome, run_trial
from pockengine.tests.finetune.tiny import tiny_subject, tiny_tuning

SUBJECT = tiny_subject()
TUNING = tiny_tuning()
FULL = preset("full", SUBJECT.graph)


def noted(
    accuracy: Callable[[float], float], requested: list[float]
) -> Callable[..., TrialOutcome]:
    """Return a run whose accuracy is a function of the rate; NaN means divergence."""

    def run(
        subject: Subject, scheme: Scheme, recipe: Recipe, train: Examples, judged: Examples
    ) -> TrialOutcome:
        assert (train, judged) == (TUNING.train, TUNING.validation)
        requested.append(recipe.rate)
        found = accuracy(recipe.rate)
        return TrialOutcome(0.9 if np.isnan(found) else found, 1.0, 1, 0.0, bool(np.isnan(found)))

    return run


def test_each_rate_is_tried_once_and_ties_go_to_the_smaller() -> None:
    requested: list[float] = []
    run = noted(lambda rate: np.nan if rate > 1 else min(rate, 0.1), requested)
    rates = (2.0, 0.4, 0.1, 0.01, 0.4)
    recipe, accuracies = tune_rate(SUBJECT, FULL, Recipe(9.0, 3, seed=4), TUNING, rates, run)

    assert requested == [2.0, 0.4, 0.1, 0.01]
    assert recipe == Recipe(0.1, 3, seed=4)
    assert accuracies == {2.0: 0.9, 0.4: 0.1, 0.1: 0.1, 0.01: 0.01}


def test_scheme_that_always_diverges_is_an_error() -> None:
    with pytest.raises(FinetuneError, match=r"full on tiny diverges at every rate \(1, 2\)"):
        tune_rate(SUBJECT, FULL, Recipe(0.1, 1), TUNING, (1, 2), noted(lambda _: float("nan"), []))


def test_real_trials_find_a_good_rate(tmp_path: Path) -> None:
    def run(
        subject: Subject, scheme: Scheme, recipe: Recipe, train: Examples, judged: Examples
    ) -> TrialOutcome:
        return run_trial(subject, scheme, recipe, train, judged, tmp_path)

    recipe, accuracies = tune_rate(SUBJECT, FULL, Recipe(1.0, 2), TUNING, (1e-5, 0.05, 1e6), run)

    assert recipe.rate == 0.05
    assert accuracies[0.05] > 0.6 > accuracies[1e-5]
