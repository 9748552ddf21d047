"""Searches with a contribution table: the one that finds schemes, and the controls."""

from concurrent.futures import as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pockengine.compiler.optim import Optimizer
from pockengine.devices import load_device
from pockengine.finetune.contributions import Contributions
from pockengine.finetune.cost import CostModel
from pockengine.finetune.search import Budget, Front, Point, SearchEffort, search
from pockengine.finetune.space import space_of
from pockengine.finetune.subject import load_subject
from pockengine.finetune.trial_job import put_subject
from pockengine.studies.sparse.desk import Desk, LoadedPair
from pockengine.studies.sparse.journal import digest
from pockengine.studies.sparse.predictions import DRAWN, RANDOM, SEARCH

KINDS = {SEARCH: ("nsga2", True), DRAWN: ("nsga2", False), RANDOM: ("random", False)}
"""Compared methods: a sampler, and whether it starts from greedy orders.

The first is that of `pockengine search`; NSGA-II from draws shows the value of the greedy orders.
"""

SEARCH_SEEDS = (0, 1, 2)


def search_once(
    desk: Desk, table: LoadedPair, contributions: Contributions, budget: Budget
) -> dict[str, Any]:
    """Search as `pockengine search` does; return the front, plain."""
    job = _job(desk, table, contributions, budget, 0, SEARCH)
    _run(desk, table, [job])
    return dict(desk.journal.get(_key(table, job)) or {})


def compare_searches(
    desk: Desk, table: LoadedPair, contributions: Contributions, budgets: list[Budget]
) -> None:
    """Search with every method and seed within each budget, and store the curves."""
    jobs = [
        _job(desk, table, contributions, budget, seed, kind)
        for budget in budgets
        for seed in SEARCH_SEEDS
        for kind in KINDS
    ]
    _run(desk, table, jobs)


@dataclass(frozen=True)
class SearchJob:
    """The arguments of a search, with the subject's folder; `kind` is one of KINDS."""

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
        SearchEffort(job.evaluations, job.seed, sampler, warm),
    )
    return _plain(front)


def _job(
    desk: Desk,
    table: LoadedPair,
    contributions: Contributions,
    budget: Budget,
    seed: int,
    kind: str,
) -> SearchJob:
    subject = desk.places.cache / "subjects" / put_subject(desk.places.cache, table.subject)
    evaluations = table.effort.evaluations
    optimizer = table.model.optimizer
    return SearchJob(subject, optimizer, contributions, budget, evaluations, seed, kind)


def _run(desk: Desk, table: LoadedPair, jobs: list[SearchJob]) -> None:
    """Run the jobs that the journal lacks."""
    futures = {
        desk.executor.submit(run_search, job): job
        for job in jobs
        if desk.journal.get(_key(table, job)) is None
    }
    for future in as_completed(futures):
        job = futures[future]
        facts = {"measure": job.contributions.measure, "commit": desk.commit}
        desk.journal.put(_key(table, job), {**future.result(), **facts})
        desk.tell(f"{table.pair}: searched by {job.kind}, seed {job.seed}")


def _key(table: LoadedPair, job: SearchJob) -> dict[str, Any]:
    gains = sorted((str(item), gain.mean) for item, gain in job.contributions.gains.items())
    return {
        "kind": "search",
        "pair": str(table.pair),
        "gains": digest(repr(gains)),
        "evaluations": job.evaluations,
        "subject": table.subject.digest()[:12],
        "sampler": job.kind,
        "seed": job.seed,
        "budget": job.budget.memory_bytes,
        "work": job.budget.work,
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
