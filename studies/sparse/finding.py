"""From the contribution table to the searched scheme: searches, controls, and real validation."""

from collections.abc import Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pockengine.compiler.optim import Optimizer
from pockengine.compiler.sparse import Scheme
from pockengine.devices import load_device
from pockengine.errors import FinetuneError
from pockengine.finetune.contributions import Contributions, Item
from pockengine.finetune.cost import CostModel
from pockengine.finetune.search import Budget, Front, Point, search
from pockengine.finetune.search_validate import finalists
from pockengine.finetune.space import scheme_of, space_of
from pockengine.finetune.subject import load_subject
from pockengine.finetune.trial_job import put_subject
from pockengine.studies.sparse.desk import VALIDATION, Desk, LoadedPair, Trial, run_trials
from pockengine.studies.sparse.journal import digest
from pockengine.studies.sparse.predictions import DRAWN, RANDOM, SEARCH
from pockengine.studies.sparse.schemes import FULL, HEAD, LORA, SEARCHED
from pockengine.studies.sparse.tuned import tuned_recipes

KINDS = {SEARCH: ("nsga2", True), DRAWN: ("nsga2", False), RANDOM: ("random", False)}
"""What is compared: a sampler, and whether it starts from greedy beginnings. The first is what
`pockengine search` does; NSGA-II from draws alone shows what the beginnings are worth."""

SEARCH_SEEDS = (0, 1, 2)


def find_scheme(desk: Desk, table: LoadedPair, contributions: Contributions) -> Scheme | None:
    """Search under the budget, tune and train the finalists, return the best by validation.

    The budget is a share of full's extra memory, and no more modelled work than LoRA's where that
    is compared. None where nothing that was found gains anything.
    """
    full, head = (_memory(_cost(desk, table, name)) for name in (FULL, HEAD))
    work = _cost(desk, table, LORA)["work"] if table.model.text else None
    budget = Budget(memory_bytes=round(table.effort.budget * full), work=work)
    front = _searches(desk, table, contributions, budget)
    tight = max(round(table.effort.tight * full), 2 * head)
    _searches(desk, table, contributions, Budget(memory_bytes=tight))
    points = [_point(point) for point in front["points"]]
    places = finalists([gain for _, gain in points], table.effort.finalists)
    if not places:
        return None
    chosen, graph = [points[place] for place in places], table.subject.graph
    schemes = {scheme_of(graph, items, SEARCHED): gain for items, gain in chosen}
    validated = _validated(desk, table, list(schemes))
    key = _key(table, contributions, "finalists")
    result = {
        "predicted": [schemes[scheme] for scheme in validated],
        "validated": list(validated.values()),
        "baseline": contributions.baseline,
        "commit": desk.commit,
    }
    if desk.journal.get(key) is None:
        desk.journal.put(key, result)
    return max(validated, key=lambda scheme: validated[scheme])


def _validated(desk: Desk, table: LoadedPair, schemes: Sequence[Scheme]) -> dict[Scheme, float]:
    """Return each scheme's accuracy on the validation part: the mean of the probes' seeds."""
    recipes, seeds = tuned_recipes(desk, table, schemes), table.effort.probe_seeds
    trials = {
        (scheme, seed): Trial(scheme, replace(recipe, seed=seed), VALIDATION, "finalist")
        for scheme, recipe in recipes.items()
        for seed in seeds
    }
    outcomes = run_trials(desk, table, list(trials.values()))
    return {
        scheme: fmean(outcomes[trials[scheme, seed]].accuracy for seed in seeds)
        for scheme in schemes
    }


def _memory(cost: Mapping[str, Any]) -> int:
    return int(cost["extra_bytes"] + cost["state_bytes"])


def _cost(desk: Desk, table: LoadedPair, scheme: str) -> Mapping[str, Any]:
    for _, cost in desk.journal.entries(
        kind="cost", pair=str(table.pair), scheme=scheme, subject=table.subject.digest()[:12]
    ):
        return cost
    raise FinetuneError(f"{table.pair}: the cost of {scheme} is not in {desk.journal.path}")


def _searches(
    desk: Desk, table: LoadedPair, contributions: Contributions, budget: Budget
) -> dict[str, Any]:
    """Search in every way and by every seed, storing each; return the search's first, plain."""
    subject = desk.places.cache / "subjects" / put_subject(desk.places.cache, table.subject)
    settings = table.model.optimizer, contributions, budget, table.effort.evaluations
    jobs = [SearchJob(subject, *settings, seed, kind) for seed in SEARCH_SEEDS for kind in KINDS]
    futures = {
        desk.executor.submit(run_search, job): job
        for job in jobs
        if desk.journal.get(_search_key(table, job)) is None
    }
    for future in as_completed(futures):
        job = futures[future]
        desk.journal.put(_search_key(table, job), {**future.result(), "commit": desk.commit})
        desk.tell(f"{table.pair}: searched by {job.kind}, seed {job.seed}")
    return dict(desk.journal.get(_search_key(table, jobs[0])) or {})


@dataclass(frozen=True)
class SearchJob:
    """The arguments of a search, with the subject by its folder; `kind` is one of KINDS."""

    subject: Path
    optimizer: Optimizer
    contributions: Contributions
    budget: Budget
    evaluations: int
    seed: int
    kind: str


def run_search(job: SearchJob) -> dict[str, Any]:
    """Search in a worker."""
    sampler, warm = KINDS[job.kind]
    graph = load_subject(job.subject).graph
    front = search(
        CostModel(graph, load_device("host"), job.optimizer),
        space_of(graph, list(job.contributions.gains)),
        job.contributions,
        job.budget,
        evaluations=job.evaluations,
        seed=job.seed,
        sampler=sampler,
        warm=warm,
    )
    return _plain(front)


def _search_key(table: LoadedPair, job: SearchJob) -> dict[str, Any]:
    return {
        **_key(table, job.contributions, "search"),
        "sampler": job.kind,
        "seed": job.seed,
        "budget": job.budget.memory_bytes,
        "work": job.budget.work,
    }


def _key(table: LoadedPair, contributions: Contributions, kind: str) -> dict[str, Any]:
    gains = sorted((str(item), gain.mean) for item, gain in contributions.gains.items())
    return {
        "kind": kind,
        "pair": str(table.pair),
        "gains": digest(repr(gains)),
        "evaluations": table.effort.evaluations,
        "subject": table.subject.digest()[:12],
    }


def _plain(front: Front) -> dict[str, Any]:
    return {
        "points": [_plain_point(point) for point in front.points],
        "curve": list(front.curve),
        "distinct": front.distinct,
    }


def _plain_point(point: Point) -> dict[str, Any]:
    items = [asdict(item) for item in point.items]
    return {"items": items, "gain": point.gain, "memory_bytes": point.cost.memory_bytes}


def _point(plain: dict[str, Any]) -> tuple[tuple[Item, ...], float]:
    return tuple(Item(**item) for item in plain["items"]), float(plain["gain"])
