"""Compare all criteria for choosing a weight's channels, on one pair, with the same share.

The preset sparse scheme trains a quarter of each weight's channels instead of all; the criteria
choose the quarter. All use the preset's rate, so the choice is the only difference.
"""

from dataclasses import replace

from pockengine.compiler.ir import Graph
from pockengine.compiler.sparse import ParamChoice, Scheme
from pockengine.compiler.sparse.channels import CRITERIA
from pockengine.compiler.sparse.choice import FULL
from pockengine.compiler.sparse.scheme import channel_axis
from pockengine.errors import SchemeError
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.selection import DATA_CRITERIA
from pockengine.studies.sparse.desk import TEST, Desk, LoadedPair, Trial, run_trials
from pockengine.studies.sparse.measures import measure_costs

SHARE = 0.25


def compare_criteria(desk: Desk, table: LoadedPair, sparse: Scheme, recipe: Recipe) -> None:
    """Train the preset sparse scheme with a quarter of the channels, with every criterion."""
    schemes = [quartered(table.subject.graph, sparse, by) for by in (*CRITERIA, *DATA_CRITERIA)]
    measure_costs(desk, table, schemes)
    run_trials(
        desk,
        table,
        [
            Trial(scheme, replace(recipe, seed=seed), TEST, "criteria")
            for scheme in schemes
            for seed in table.effort.seeds
        ],
    )


def quartered(graph: Graph, scheme: Scheme, by: str) -> Scheme:
    """Return the scheme with a share of the channels of every weight that it trains whole.

    Items without channels (biases), and the head, are unchanged.
    """
    rules = []
    for name, choice in scheme.choices(graph).items():
        share = ParamChoice("share", share=SHARE, by=by)
        rules.append((name, share if choice == FULL and _has_channels(graph, name) else choice))
    return Scheme(f"quarter by {by}", tuple(rules))


def _has_channels(graph: Graph, name: str) -> bool:
    param = graph.params[name]
    try:
        channel_axis("criteria", graph, param)
    except SchemeError:
        return False
    return len(param.value.shape) > 1
