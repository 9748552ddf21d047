"""Learning rates: every scheme tries the same ones, on the validation part."""

from collections.abc import Sequence
from dataclasses import replace

from pockengine.compiler.sparse import Scheme
from pockengine.finetune.rates import tune_rate
from pockengine.finetune.recipe import Recipe
from pockengine.studies.sparse.desk import VALIDATION, Desk, LoadedPair, Trial, run_trials


def tuned_recipes(desk: Desk, table: LoadedPair, schemes: Sequence[Scheme]) -> dict[Scheme, Recipe]:
    """Try the model's rates with every scheme, in parallel; return each scheme's recipe."""
    effort, model = table.effort, table.model
    recipe = Recipe(model.rates[0], effort.epochs, 0, model.optimizer)
    tries = {
        (scheme, rate): Trial(scheme, replace(recipe, rate=rate), VALIDATION, "choice")
        for scheme in schemes
        for rate in model.rates
    }
    outcomes = run_trials(desk, table, list(tries.values()))
    recipes = {}
    for scheme in schemes:
        recipes[scheme], _ = tune_rate(
            table.subject,
            scheme,
            recipe,
            table.task.tuning,
            model.rates,
            lambda _, scheme, recipe, *parts: outcomes[tries[scheme, recipe.rate]],
        )
    return recipes
