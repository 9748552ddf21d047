"""From the contribution table to the searched scheme: a search, and a race with the presets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pockengine.compiler.sparse import Scheme, preset
from pockengine.devices import load_device
from pockengine.errors import FinetuneError
from pockengine.finetune.candidates import PRESETS, SchemeCandidate, candidates, presets_within
from pockengine.finetune.contributions import Contributions, Item
from pockengine.finetune.cost import CostModel
from pockengine.finetune.gains import Signal
from pockengine.finetune.race import Run, Runs, Standing, race
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.search import Budget, Point
from pockengine.finetune.search_validate import finalists
from pockengine.finetune.shrinkage import shrunk
from pockengine.finetune.space import scheme_of
from pockengine.finetune.trial import TrialOutcome
from pockengine.studies.sparse.desk import (
    VALIDATION,
    Desk,
    LoadedPair,
    Trial,
    rules_digest,
    run_trials,
)
from pockengine.studies.sparse.schemes import FULL, HEAD, LORA, SEARCHED
from pockengine.studies.sparse.searching import search_once


@dataclass(frozen=True)
class Finding:
    """A scheme, the recipe at its rate, and its allowed share of full's extra memory."""

    scheme: Scheme
    recipe: Recipe
    share: float


def find_scheme(desk: Desk, table: LoadedPair, signal: Signal) -> Finding:
    """Search within the first budget whose winner is close to full on the validation examples."""
    effort = table.effort
    full = _raced(desk, table, [preset(FULL, table.subject.graph)], ())[0].mean

    def race_within(share: float) -> Standing:
        best = _race_within(desk, table, signal, share)
        found = f"{100 * best.mean:.1f}% within {share:.3f} of full's extra memory"
        desk.tell(f"{table.pair}: {best.scheme.name}, {found}; full has {100 * full:.1f}%")
        return best

    share, best = first_close(effort.budgets, race_within, full - effort.close)
    return Finding(replace(best.scheme, name=SEARCHED), best.recipe, share)


def first_close(
    shares: Sequence[float], race_within: Callable[[float], Standing], least: float
) -> tuple[float, Standing]:
    """Return the first share whose winner reaches `least`, else the last; and the winner."""
    for share in shares:
        best = race_within(share)
        if best.mean >= least:
            break
    return share, best


def _race_within(desk: Desk, table: LoadedPair, signal: Signal, share: float) -> Standing:
    """Search within a share of full's extra memory, race results and presets; return the winner."""
    graph = table.subject.graph
    costs = CostModel(graph, load_device("host"), table.model.optimizer)
    gains = None if signal.contributions is None else shrunk(signal.contributions)
    names = (*PRESETS, f"last-{table.model.last}-blocks")
    budget = budget_of(desk, table, share)
    presets = list(presets_within(costs, budget, gains, names))
    found: list[Point] = []
    if signal.contributions is not None:
        found = _best_points(desk, table, signal.contributions, costs, budget)
    entrants = candidates(costs, found, presets)
    schemes = [one.scheme for one in entrants]
    results = _raced(desk, table, schemes, [one.scheme for one in presets])
    _store(desk, table, signal, entrants, results)
    return results[0]


def _raced(
    desk: Desk, table: LoadedPair, schemes: Sequence[Scheme], presets: Sequence[Scheme]
) -> list[Standing]:
    """Race schemes with the pair's rates and seeds."""
    recipe = Recipe(table.model.rates[0], table.effort.epochs, 0, table.model.optimizer)
    run, seeds = _trainer(desk, table), table.effort.race_seeds
    return race(schemes, presets, recipe, table.model.rates, seeds, run)


def budget_of(desk: Desk, table: LoadedPair, share: float) -> Budget:
    """Return a share of full's extra memory, and LoRA's modelled work if that is compared."""
    full = _memory(cost_entry(desk, table, FULL))
    work = cost_entry(desk, table, LORA)["work"] if table.model.text else None
    return Budget(memory_bytes=round(share * full), work=work)


def budgets_of(desk: Desk, table: LoadedPair) -> list[Budget]:
    """Return the first budget, and a tight one in which little fits, to compare searches."""
    full, head = (_memory(cost_entry(desk, table, name)) for name in (FULL, HEAD))
    tight = max(round(table.effort.tight * full), 2 * head)
    return [budget_of(desk, table, table.effort.budgets[0]), Budget(memory_bytes=tight)]


def _memory(cost: Mapping[str, Any]) -> int:
    return int(cost["extra_bytes"] + cost["state_bytes"])


def cost_entry(desk: Desk, table: LoadedPair, scheme: str) -> Mapping[str, Any]:
    """Return the journal's cost of a fixed scheme."""
    for _, cost in desk.journal.entries(
        kind="cost", pair=str(table.pair), scheme=scheme, subject=table.subject.digest()[:12]
    ):
        return cost
    raise FinetuneError(f"{table.pair}: the cost of {scheme} is not in {desk.journal.path}")


def _best_points(
    desk: Desk,
    table: LoadedPair,
    contributions: Contributions,
    costs: CostModel,
    budget: Budget,
) -> list[Point]:
    """Return the points of a search's front that are worth racing."""
    front = search_once(desk, table, contributions, budget)
    plain = front["points"]
    places = finalists([point["gain"] for point in plain], table.effort.finalists)
    return [_point(plain[place], costs) for place in places]


def _point(plain: Mapping[str, Any], costs: CostModel) -> Point:
    items = tuple(Item(**item) for item in plain["items"])
    return Point(items, float(plain["gain"]), costs.cost(scheme_of(costs.graph, items)))


def _trainer(desk: Desk, table: LoadedPair) -> Run:
    """Return a race's training function: trials that are stored in the journal."""

    def run(runs: Runs) -> list[TrialOutcome]:
        trials = [Trial(scheme, recipe, VALIDATION, "choice") for scheme, recipe in runs]
        outcomes = run_trials(desk, table, trials)
        return [outcomes[trial] for trial in trials]

    return run


def _store(
    desk: Desk,
    table: LoadedPair,
    signal: Signal,
    entrants: list[SchemeCandidate],
    results: list[Standing],
) -> None:
    """Store the race: accuracies by seed of the runs on which it based its choice."""
    predicted = {one.scheme: one.gain for one in entrants}
    contributions = signal.contributions
    key = {
        "kind": "race",
        "pair": str(table.pair),
        "rules": sorted(rules_digest(one.scheme) for one in results),
        "subject": table.subject.digest()[:12],
        "judged_by": table.part(VALIDATION).digest()[:12],
        "epochs": table.effort.epochs,
    }
    if desk.journal.get(key) is not None:
        return
    desk.journal.put(
        key,
        {
            "schemes": [one.scheme.name for one in results],
            "predicted": [predicted[one.scheme] for one in results],
            "accuracies": [list(one.scores) for one in results],
            "rates": [one.recipe.rate for one in results],
            "measure": None if contributions is None else contributions.measure,
            "reliabilities": dict(signal.reliabilities),
            "commit": desk.commit,
        },
    )
