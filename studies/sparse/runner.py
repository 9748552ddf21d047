"""One pair from its data to its figures: rates, sensitivity, search, final runs, measures, control.

Rates, sensitivity, search and finalists use only the training and the validation part; the test
part is for each final scheme, at its tuned rate, once per seed.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import nn

from pockengine.compiler.sparse import Scheme, load_scheme, save_scheme
from pockengine.finetune.contributions import read_table
from pockengine.finetune.gains import Signal, signal_of
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.sensitivity import SensitivityPlan, measure
from pockengine.finetune.space import items_of
from pockengine.finetune.task import Tuning
from pockengine.studies.sparse.control import run_control
from pockengine.studies.sparse.criteria import compare_criteria
from pockengine.studies.sparse.desk import TEST, VALIDATION, Desk, LoadedPair, Trial, run_trials
from pockengine.studies.sparse.finding import Finding, budgets_of, find_scheme
from pockengine.studies.sparse.head import with_trained_head
from pockengine.studies.sparse.measures import count_instructions, measure_costs, measure_steps
from pockengine.studies.sparse.plan import Effort, Pair
from pockengine.studies.sparse.schemes import SEARCHED, SPARSE, fixed_schemes
from pockengine.studies.sparse.searching import compare_searches
from pockengine.studies.sparse.subjects import (
    choosing_examples,
    classes_of,
    load_module,
    make_subject,
    make_task,
)
from pockengine.studies.sparse.tuned import tuned_recipes

CRITERIA_PAIR = Pair("mcunet-5fps", "cifar10")


def lay_table(desk: Desk, pair: Pair, effort: Effort) -> LoadedPair:
    """Load a pair's model and data."""

    def load() -> nn.Module:
        return load_module(pair.known, desk.places, classes_of(pair.dataset))

    subject = make_subject(pair.known, load(), pair.dataset)
    task = make_task(pair.known, pair.dataset, desk.places, effort.sizes)
    choosing = choosing_examples(pair.known, pair.dataset, desk.places, effort.sizes, task)
    return LoadedPair(pair, pair.known, effort, subject, task, load, choosing)


def study_pair(desk: Desk, pair: Pair, effort: Effort, out: Path, controls: bool = False) -> None:
    """Run the parts of one pair that the journal lacks; `controls` as in `study_table`."""
    desk.tell(f"{pair}: loading")
    table = lay_table(desk, pair, effort)
    study_table(desk, table, out, controls, criteria=controls and pair == CRITERIA_PAIR)


def study_table(
    desk: Desk, table: LoadedPair, out: Path, controls: bool = False, criteria: bool = False
) -> None:
    """Tune, search, train and measure; results in the journal are not repeated.

    `controls` adds a comparison of search methods, `criteria` one of channel criteria. The test
    part is not used before every scheme and rate is chosen.
    """
    _store_facts(desk, table)
    table = with_trained_head(desk, table)
    schemes = fixed_schemes(table.model, table.subject.graph)
    sparse = next(scheme for scheme in schemes if scheme.name == SPARSE)
    measure_costs(desk, table, schemes)
    recipes = tuned_recipes(desk, table, schemes)
    signal = measure_gains(desk, table, recipes[sparse], out)
    desk.tell(f"{table.pair}: {signal}")
    found = find_scheme(desk, table, signal)
    _save(found, scheme_file(out, table.pair), table)
    measure_costs(desk, table, [found.scheme])
    recipes[found.scheme] = found.recipe
    final_runs(desk, table, recipes)
    run_control(desk, table, recipes)
    measure_steps(desk, table, list(recipes))
    if controls and signal.contributions is not None:
        compare_searches(desk, table, signal.contributions, budgets_of(desk, table))
    if criteria:
        compare_criteria(desk, table, sparse, recipes[sparse])


def _store_facts(desk: Desk, table: LoadedPair) -> None:
    """Store the sizes of a pair's parts, and their digests."""
    task, effort = table.task, table.effort
    key = {
        "kind": "pair",
        "pair": str(table.pair),
        "sizes": str(effort.sizes),
        "epochs": effort.epochs,
    }
    if desk.journal.get(key) is not None:
        return
    tuning = task.tuning
    parts = {"train": tuning.train, "validation": tuning.validation, "test": task.test}
    shape = next(iter(tuning.train.inputs.values())).shape
    desk.journal.put(
        key,
        {
            **{name: len(part) for name, part in parts.items()},
            "choosing": len(table.part(VALIDATION)),
            **{f"{name}_digest": part.digest()[:12] for name, part in parts.items()},
            "classes": task.classes,
            "majority": float(np.bincount(task.test.labels).max() / len(task.test)),
            "batch": table.subject.batch,
            "seq_len": shape[1] if table.model.text else None,
            "commit": desk.commit,
        },
    )


def final_runs(desk: Desk, table: LoadedPair, recipes: dict[Scheme, Recipe]) -> None:
    """Train every scheme with every seed, and evaluate on the test part."""
    run_trials(
        desk,
        table,
        [
            Trial(scheme, replace(recipe, seed=seed), TEST, "final")
            for seed in table.effort.seeds
            for scheme, recipe in recipes.items()
        ],
    )


def measure_gains(desk: Desk, table: LoadedPair, recipe: Recipe, out: Path) -> Signal:
    """Measure the gain of every item, at the preset sparse scheme's rate and with shorter runs.

    An existing table keeps its rate.
    """
    effort, tuning = table.effort, table.task.tuning
    probe = Tuning(
        tuning.train.take(np.arange(min(effort.probe_train, len(tuning.train)))),
        tuning.validation.take(np.arange(min(effort.probe_validation, len(tuning.validation)))),
    )
    graph = table.subject.graph
    items = items_of(
        graph,
        effort.shares,
        bias_sets=effort.bias_sets,
        upper=effort.upper,
        upper_biases=effort.upper_biases,
    )
    desk.tell(f"{table.pair}: sensitivity of {len(items)} items")
    path = out / "contributions" / f"{table.pair.model}-{table.pair.dataset}.jsonl"
    rate = float(read_table(path)[0]["recipe"]["rate"]) if path.exists() else recipe.rate
    probing = replace(recipe, rate=rate, epochs=effort.probe_epochs)
    measure(
        SensitivityPlan(table.subject, probe, items, probing, effort.probe_seeds),
        path,
        desk.executor,
        lambda progress: desk.tell(
            f"{table.pair} sensitivity {progress.done} of {progress.total}: {progress.last}"
        ),
        folder=desk.places.cache,
    )
    return signal_of(read_table(path)[1])


def count_pair(desk: Desk, pair: Pair, effort: Effort, out: Path) -> None:
    """Count the instructions of a step on the emulated board, for every scheme of a pair."""
    table = with_trained_head(desk, lay_table(desk, pair, effort))
    schemes = [*fixed_schemes(table.model, table.subject.graph)]
    path = scheme_file(out, pair)
    if path.exists():
        schemes.append(replace(load_scheme(path), name=SEARCHED))
    count_instructions(desk, table, schemes)


def scheme_file(out: Path, pair: Pair) -> Path:
    """Return the path of a pair's searched scheme."""
    return out / "schemes" / f"{pair.model}-{pair.dataset}.toml"


def _save(found: Finding, path: Path, table: LoadedPair) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    budget = f"{found.share:.3f} of full's extra memory"
    save_scheme(found.scheme, path, f"Searched for {table.pair} under {budget}; see ../sparse.md.")
