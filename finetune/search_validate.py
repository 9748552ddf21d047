"""Validate a search's results by real fine-tuning.

Trials run like those of the contribution table: same data, recipe and seeds, judged on the
validation set.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from pockengine.compiler.optim import Optimizer
from pockengine.errors import FinetuneError, reason_of
from pockengine.finetune.race import Run, Runs
from pockengine.finetune.recipe import Recipe, settings_of
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Tuning
from pockengine.finetune.trial import TrialOutcome
from pockengine.finetune.trial_job import TrialJob, put_examples, put_subject, run_job

LEAST = 0.5
"""Share of the best predicted gain below which a point of a front is not validated."""


def finalists(gains: Sequence[float], count: int) -> list[int]:
    """Return at most `count` indices of predicted gains to validate, largest gain first.

    The others are spaced evenly down to half of the largest gain, because neighbors on a front
    train nearly the same. Items without a gain are excluded.
    """
    order = sorted(range(len(gains)), key=lambda place: -gains[place])
    worth = [place for place in order if gains[place] > 0 and gains[place] >= LEAST * max(gains)]
    gaps = max(1, count - 1)
    spread = dict.fromkeys(round(n * (len(worth) - 1) / gaps) for n in range(count))
    return [worth[place] for place in spread] if worth else []


def trainer(subject: Subject, tuning: Tuning, executor: Executor, folder: Path) -> Run:
    """Return a race's training function; `folder` stores data and artifacts for the workers."""
    folder = folder.resolve()
    placed = (
        put_subject(folder, subject),
        put_examples(folder, tuning.train),
        put_examples(folder, tuning.validation),
    )

    def run(runs: Runs) -> list[TrialOutcome]:
        jobs = [TrialJob(folder, *placed, scheme, recipe) for scheme, recipe in runs]
        return list(executor.map(run_job, jobs))

    return run


def recipe_of(header: Mapping[str, Any], optimizer: Optimizer) -> tuple[Recipe, list[int]]:
    """Read the recipe and the seeds from a table's header; FinetuneError for another optimizer."""
    try:
        fields = dict(header["recipe"])
        seeds = [int(seed) for seed in header["seeds"]]
        if fields.pop("optimizer") != settings_of(optimizer):
            raise FinetuneError(
                f"the contributions were measured by {header['recipe']['optimizer']}, and this "
                f"command trains by {settings_of(optimizer)}"
            )
        return Recipe(**fields, optimizer=optimizer), seeds
    except (KeyError, TypeError, ValueError) as error:
        raise FinetuneError(
            f"the contributions' header names no recipe and seeds: {reason_of(error)}"
        ) from error


def check_data(header: Mapping[str, Any], tuning: Tuning) -> None:
    """Raise FinetuneError for data that the contributions were not measured on."""
    for name, examples in (("train", tuning.train), ("validation", tuning.validation)):
        if header.get(name) != examples.digest():
            raise FinetuneError(
                f"the contributions were measured on other {name} data; give the same --train "
                "and the same share of --validation"
            )
