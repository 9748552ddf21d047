"""Sensitivity: fine-tune one item at a time with the head, and measure its gain.

All trials of a table share model, data, recipe and seeds; the baseline trains the head alone. Runs
on any `concurrent.futures` executor. Every finished trial is stored at once, and stored trials are
not repeated.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pockengine.errors import FinetuneError
from pockengine.finetune.contributions import (
    Contributions,
    ContributionTable,
    Item,
    Key,
    contributions_of,
    open_table,
)
from pockengine.finetune.judges import ACCURACY
from pockengine.finetune.recipe import Recipe, settings_of
from pockengine.finetune.space import scheme_of
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Tuning
from pockengine.finetune.trial import TrialOutcome, check_examples
from pockengine.finetune.trial_job import TrialJob, forget, put_examples, put_subject, run_job

BASELINE = "head-only"


@dataclass(frozen=True)
class TrialProgress:
    """Finished trials, all trials, the estimated seconds left, and the last trial's name.

    `seconds_left` is None until this run has finished a trial.
    """

    done: int
    total: int
    seconds_left: float | None
    last: str


Tell = Callable[[TrialProgress], None]


@dataclass(frozen=True)
class SensitivityPlan:
    """Measurements: each item, at each seed, with one recipe; `recipe.seed` is ignored."""

    subject: Subject
    tuning: Tuning
    items: Sequence[Item]
    recipe: Recipe
    seeds: Sequence[int]

    @property
    def keys(self) -> list[Key]:
        """The trials: for each seed the head alone, and each item with the head."""
        return [(item, seed) for item in (None, *self.items) for seed in self.seeds]


def measure(
    plan: SensitivityPlan,
    path: Path,
    executor: Executor,
    progress: Tell = lambda _: None,
    folder: Path | None = None,
) -> Contributions:
    """Measure the gain of each item at each seed.

    Trials are appended to the table in `path`; finished ones are not run again. `folder` stores
    model, data and artifacts for the workers; by default it is beside the table. FinetuneError if a
    table has other settings, or if a worker dies: run it again to continue.
    """
    subject, tuning, recipe = plan.subject, plan.tuning, plan.recipe
    check_examples(subject, tuning.train, tuning.validation)
    folder = (folder or path.with_name(f"{path.name}.work")).resolve()
    requested = dict.fromkeys(plan.keys)
    with open_table(path, header_of(subject, tuning, recipe, plan.seeds)) as table:
        missing = [key for key in requested if key not in table.trials]
        _tell_start(table, missing, progress)
        if missing:
            jobs = _jobs(subject, tuning, recipe, keys=missing, folder=folder)
            _run(jobs, table, executor, progress)
        trials = {key: trial for key, trial in table.trials.items() if key in requested}
        return contributions_of(trials, subject.judge)


def header_of(
    subject: Subject, tuning: Tuning, recipe: Recipe, seeds: Sequence[int]
) -> dict[str, Any]:
    """Return the common settings of a table's trials."""
    shared = {name: value for name, value in _plain(recipe).items() if name != "seed"}
    judge = {} if subject.judge == ACCURACY.name else {"judge": subject.judge}
    return {
        "subject": subject.name,
        "graph": subject.digest(),
        "train": tuning.train.digest(),
        "validation": tuning.validation.digest(),
        "recipe": shared,
        "seeds": list(seeds),
        "baseline": [pattern for pattern, _ in scheme_of(subject.graph, [], BASELINE).rules],
        **judge,
    }


def _plain(recipe: Recipe) -> Mapping[str, Any]:
    return {**asdict(recipe), "optimizer": settings_of(recipe.optimizer)}


def _jobs(
    subject: Subject, tuning: Tuning, recipe: Recipe, keys: Sequence[Key], folder: Path
) -> dict[Key, TrialJob]:
    """Write model and data for the workers, and list the trials."""
    placed = (
        put_subject(folder, subject),
        put_examples(folder, tuning.train),
        put_examples(folder, tuning.validation),
    )
    schemes = {
        item: scheme_of(subject.graph, [] if item is None else [item], str(item or BASELINE))
        for item in dict.fromkeys(item for item, _ in keys)
    }
    return {
        (item, seed): TrialJob(folder, *placed, schemes[item], replace(recipe, seed=seed))
        for item, seed in keys
    }


def _run(
    jobs: Mapping[Key, TrialJob], table: ContributionTable, executor: Executor, progress: Tell
) -> None:
    """Run jobs and append each to the table when it ends; an error cancels the others.

    An item's artifact is deleted after its last seed: those of a large model would fill a disk.
    """
    start = time.monotonic()
    futures: dict[Future[TrialOutcome], Key] = {
        executor.submit(run_job, job): key for key, job in jobs.items()
    }
    waiting = Counter(item for item, _ in jobs)
    try:
        for done, future in enumerate(as_completed(futures), 1):
            item, seed = key = futures[future]
            table.add(item, seed, future.result())
            waiting[item] -= 1
            if not waiting[item]:
                forget(jobs[key])
            left = (time.monotonic() - start) / done * (len(jobs) - done)
            total = len(table.trials) + len(jobs) - done
            progress(
                TrialProgress(len(table.trials), total, left, f"{item or BASELINE}, seed {seed}")
            )
    except (BrokenExecutor, CancelledError) as error:
        raise FinetuneError(
            "a worker ended in the middle of a trial (was it killed, or out of memory?); run the "
            "same again: what is in the table is not run twice"
        ) from error
    finally:
        for future in futures:
            future.cancel()


def _tell_start(table: ContributionTable, missing: Sequence[Key], progress: Tell) -> None:
    done = len(table.trials)
    progress(TrialProgress(done, done + len(missing), None, "started"))
