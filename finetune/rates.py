"""Tune the learning rate of a scheme, with the same number of tries for every scheme.

A scheme at another's rate looks worse than it is, so a fair comparison needs this. Rates are
evaluated on the validation set only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pockengine.compiler.sparse import Scheme
from pockengine.errors import FinetuneError
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Examples, Tuning
from pockengine.finetune.trial import TrialOutcome

Run = Callable[[Subject, Scheme, Recipe, Examples, Examples], TrialOutcome]
"""`run_trial`, with or without its folder bound."""


def tune_rate(
    subject: Subject,
    scheme: Scheme,
    recipe: Recipe,
    tuning: Tuning,
    rates: Sequence[float],
    run: Run,
) -> tuple[Recipe, dict[float, float]]:
    """Try each rate once; return the recipe at the best and the scores by rate.

    Ties go to the smaller rate, and diverged trials never win; FinetuneError if all diverge.
    """
    if not rates:
        raise FinetuneError("give at least one learning rate to try")
    outcomes = {
        rate: run(subject, scheme, replace(recipe, rate=rate), tuning.train, tuning.validation)
        for rate in dict.fromkeys(rates)
    }
    best = best_rate(outcomes)
    if best is None:
        tried = ", ".join(f"{rate:g}" for rate in outcomes)
        raise FinetuneError(
            f"scheme {scheme.name} on {subject.name} diverges at every rate ({tried}); give smaller"
        )
    scores = {rate: outcome.score for rate, outcome in outcomes.items()}
    return replace(recipe, rate=best), scores


def best_rate(outcomes: Mapping[float, TrialOutcome]) -> float | None:
    """Return the rate of the best score, the smaller for ties; None if all diverge."""
    sound = sorted(rate for rate, outcome in outcomes.items() if not outcome.diverged)
    return max(sound, key=lambda rate: outcomes[rate].score, default=None)
