"""Real fine-tuning of what a search found: is the predicted gain the one that is there?

Trials run as those of the contribution table did: same data, recipe and seeds, judged on the
validation set. Gains are above the table's baseline, the head alone.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from pockengine.compiler.optim import Optimizer
from pockengine.errors import FinetuneError
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.search import Point
from pockengine.finetune.space import scheme_of
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Tuning
from pockengine.finetune.trial_job import TrialJob, put_examples, put_subject, run_job

LEAST = 0.5
"""Share of the best predicted gain below which a point of a front is not worth validating."""


@dataclass(frozen=True)
class Validated:
    """A point and what it gained in truth: mean and standard deviation over the seeds."""

    point: Point
    gain: float
    spread: float


def finalists(gains: Sequence[float], count: int) -> list[int]:
    """Return at most `count` places of predicted gains to validate, the largest gain first.

    The others lie evenly down to half of it: neighbours on a front train nearly the same. What
    gains nothing is no finalist.
    """
    order = sorted(range(len(gains)), key=lambda place: -gains[place])
    worth = [place for place in order if gains[place] > 0 and gains[place] >= LEAST * max(gains)]
    gaps = max(1, count - 1)
    spread = dict.fromkeys(round(n * (len(worth) - 1) / gaps) for n in range(count))
    return [worth[place] for place in spread] if worth else []


def validate(
    subject: Subject,
    tuning: Tuning,
    points: Sequence[Point],
    recipe: Recipe,
    seeds: Sequence[int],
    baseline: float,
    executor: Executor,
    folder: Path,
) -> list[Validated]:
    """Fine-tune each point with each seed; `folder` keeps data and artifacts for the workers."""
    folder = folder.resolve()
    placed = (
        put_subject(folder, subject),
        put_examples(folder, tuning.train),
        put_examples(folder, tuning.validation),
    )
    schemes = [scheme_of(subject.graph, point.items) for point in points]
    jobs = [
        TrialJob(folder, *placed, scheme, replace(recipe, seed=seed))
        for scheme in schemes
        for seed in seeds
    ]
    outcomes = iter(list(executor.map(run_job, jobs)))
    results = []
    for point in points:
        gains = [next(outcomes).accuracy - baseline for _ in seeds]
        results.append(Validated(point, fmean(gains), stdev(gains) if len(gains) > 1 else 0.0))
    return results


def recipe_of(header: Mapping[str, Any], optimizer: Optimizer) -> tuple[Recipe, list[int]]:
    """Read the recipe and the seeds from a table's header; they must be of this optimizer."""
    try:
        fields = dict(header["recipe"])
        seeds = [int(seed) for seed in header["seeds"]]
        if fields.pop("optimizer") != repr(optimizer):
            raise FinetuneError(
                f"the contributions were measured by {header['recipe']['optimizer']}, and this "
                f"command trains by {optimizer}"
            )
        return Recipe(**fields, optimizer=optimizer), seeds
    except (KeyError, TypeError, ValueError) as error:
        raise FinetuneError(
            f"the contributions' header names no recipe and seeds: {error!r}"
        ) from error


def check_data(header: Mapping[str, Any], tuning: Tuning) -> None:
    """Refuse data that the contributions were not measured on."""
    for name, examples in (("train", tuning.train), ("validation", tuning.validation)):
        if header.get(name) != examples.digest():
            raise FinetuneError(
                f"the contributions were measured on other {name} data; give the same --train "
                "and the same share of --validation-share"
            )
