"""Trials of the study: run in parallel, stored when they end, never repeated."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.choice import write_choice
from pockengine.finetune.recipe import Recipe, settings_of
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Examples, Task
from pockengine.finetune.trial import TrialOutcome
from pockengine.finetune.trial_job import TrialJob, put_examples, put_subject, run_job
from pockengine.studies.sparse.journal import Journal, digest
from pockengine.studies.sparse.plan import Effort, Pair
from pockengine.studies.sparse.subjects import Model, StudyFolders

VALIDATION, TEST = "validation", "test"


@dataclass(frozen=True)
class Desk:
    """State shared by the whole study: journal, workers, paths, and progress reports."""

    places: StudyFolders
    journal: Journal
    executor: Executor
    commit: str
    tell: Callable[[str], None]


@dataclass(frozen=True)
class Trial:
    """One training run. `judged` is VALIDATION or TEST.

    `purpose` is the reason of the run: "choice" of a rate and in races, "final" or "criteria".
    """

    scheme: Scheme
    recipe: Recipe
    judged: str
    purpose: str


@dataclass(frozen=True)
class LoadedPair:
    """A pair with its subject and data.

    `load` returns the pretrained module again, for the control. `choosing` are the examples for
    rates and races; None: the validation part.
    """

    pair: Pair
    model: Model
    effort: Effort
    subject: Subject
    task: Task
    load: Callable[[], nn.Module]
    choosing: Examples | None = None

    def part(self, judged: str) -> Examples:
        """Return the evaluation examples."""
        if judged == TEST:
            return self.task.test
        return self.task.tuning.validation if self.choosing is None else self.choosing

    def key(self, trial: Trial) -> dict[str, Any]:
        """Return everything that the outcome of a trial depends on."""
        recipe = trial.recipe
        return {
            "kind": "trial",
            "pair": str(self.pair),
            "purpose": trial.purpose,
            "scheme": trial.scheme.name,
            "rules": rules_digest(trial.scheme),
            "subject": self.subject.digest()[:12],
            "train": self.task.tuning.train.digest()[:12],
            "judged": trial.judged,
            "judged_by": self.part(trial.judged).digest()[:12],
            "rate": recipe.rate,
            "epochs": recipe.epochs,
            "seed": recipe.seed,
            "recipe": f"{settings_of(recipe.optimizer)} {recipe.schedule} warmup {recipe.warmup:g}",
        }


def rules_digest(scheme: Scheme) -> str:
    """Return a short digest of the parameters that a scheme trains; its name does not count.

    Choices are included as in files, so that a new field of a choice changes no digest.
    """
    rules = [(pattern, write_choice(choice)) for pattern, choice in scheme.rules]
    return digest(repr((rules, write_choice(scheme.default))))


def run_trials(desk: Desk, table: LoadedPair, trials: Sequence[Trial]) -> dict[Trial, TrialOutcome]:
    """Run the trials that are not in the journal; return every outcome."""
    missing = [trial for trial in trials if desk.journal.get(table.key(trial)) is None]
    futures = _submitted(desk, table, missing)
    for done, future in enumerate(as_completed(futures), 1):
        trial, outcome = futures[future], future.result()
        desk.journal.put(table.key(trial), {**_plain(outcome), "commit": desk.commit})
        desk.tell(
            f"{table.pair} {trial.purpose} {trial.scheme.name} rate {trial.recipe.rate:g} seed "
            f"{trial.recipe.seed}: {outcome.score:.1%} on {trial.judged} in "
            f"{outcome.seconds:.0f} s ({done} of {len(missing)})"
        )
    return {trial: _outcome(desk.journal.get(table.key(trial)) or {}) for trial in trials}


def _submitted(
    desk: Desk, table: LoadedPair, trials: Sequence[Trial]
) -> dict[Future[TrialOutcome], Trial]:
    if not trials:
        return {}
    folder = desk.places.cache
    subject = put_subject(folder, table.subject)
    train = put_examples(folder, table.task.tuning.train)
    judged = {name: put_examples(folder, table.part(name)) for name in {t.judged for t in trials}}
    return {
        desk.executor.submit(
            run_job,
            TrialJob(folder, subject, train, judged[trial.judged], trial.scheme, trial.recipe),
        ): trial
        for trial in trials
    }


def _plain(outcome: TrialOutcome) -> dict[str, Any]:
    """Return an outcome as JSON: NaN and infinity become null."""
    row = {"accuracy": outcome.score, **asdict(outcome)}
    del row["score"]
    return {**row, "loss": None if outcome.diverged else outcome.loss}


def _outcome(result: Mapping[str, Any]) -> TrialOutcome:
    loss = float("nan") if result["loss"] is None else result["loss"]
    return TrialOutcome(
        result["accuracy"],
        loss,
        result["steps"],
        result["seconds"],
        result["diverged"],
        tuple(result.get("parts", ())),
    )
