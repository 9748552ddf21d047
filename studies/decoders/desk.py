"""Trials of the study: run in processes, once each, and stored in a journal."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from pockengine.compiler.sparse import Scheme
from pockengine.finetune.lm.settings import Texts
from pockengine.finetune.lm.subject import decoder_subject, text_rows, text_tuning
from pockengine.finetune.race import Runs
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Examples, Tuning
from pockengine.finetune.trial import TrialOutcome
from pockengine.finetune.trial_job import TrialJob, put_examples, put_subject, run_job
from pockengine.studies.decoders.texts import Cut
from pockengine.studies.sparse.journal import Entry, Journal, digest

BATCH, LENGTH = 2, 256
SHARE, SEED = 0.2, 0
"""The held-out share of the tuning texts, and the seed of the split."""


@dataclass(frozen=True)
class Desk:
    """A model and its texts, with the executor and the storage of trials."""

    subject: Subject
    tuning: Tuning
    test: Examples
    folder: Path
    executor: Executor
    journal: Journal

    def validated(self, runs: Runs) -> list[TrialOutcome]:
        """Train schemes, and evaluate them on the validation texts."""
        return self._run(runs, self.tuning.validation)

    def tested(self, runs: Runs) -> list[TrialOutcome]:
        """Train schemes, and evaluate them on the test texts, which are not used for choices."""
        return self._run(runs, self.test)

    def _run(self, runs: Runs, judged: Examples) -> list[TrialOutcome]:
        keys = [self._key(scheme, recipe, judged) for scheme, recipe in runs]
        new = [place for place, key in enumerate(keys) if self.journal.get(key) is None]
        placed = (
            put_subject(self.folder, self.subject),
            put_examples(self.folder, self.tuning.train),
            put_examples(self.folder, judged),
        )
        jobs = [TrialJob(self.folder, *placed, *runs[place]) for place in new]
        for place, outcome in zip(new, self.executor.map(run_job, jobs), strict=True):
            self.journal.put(keys[place], {**_plain(outcome), "scheme": runs[place][0].name})
        return [_outcome(self.journal.get(key) or {}) for key in keys]

    def _key(self, scheme: Scheme, recipe: object, judged: Examples) -> Entry:
        return {
            "subject": self.subject.digest()[:12],
            "train": self.tuning.train.digest()[:12],
            "judged": judged.digest()[:12],
            "trains": digest(repr((scheme.rules, scheme.default))),
            "recipe": repr(recipe),
        }


def open_desk(model: Path, cut: Cut, work: Path, executor: Executor, length: int = LENGTH) -> Desk:
    """Read a model and its texts; `work` stores artifacts and the journal."""
    texts = Texts(cut.tuned, None, SHARE, truncate=True)
    tuning, _ = text_tuning(model, texts, length, SEED)
    test = text_rows(model, Texts(cut.test, truncate=True), length)
    subject = decoder_subject(model, BATCH, length)
    return Desk(subject, tuning, test, work, executor, Journal(work / "trials.jsonl"))


def _plain(outcome: TrialOutcome) -> dict[str, float | int | bool | None]:
    lost = outcome.diverged
    return {
        "score": None if lost else outcome.score,
        "loss": None if lost else outcome.loss,
        "steps": outcome.steps,
        "seconds": outcome.seconds,
        "diverged": lost,
    }


def _outcome(result: Mapping[str, float]) -> TrialOutcome:
    lost = bool(result["diverged"])
    score = float("-inf") if lost else result["score"]
    loss = float("nan") if lost else result["loss"]
    return TrialOutcome(score, loss, int(result["steps"]), result["seconds"], lost)


def losses_of(outcomes: Sequence[TrialOutcome]) -> tuple[float, ...]:
    """Return the losses of the evaluation texts."""
    return tuple(-outcome.score for outcome in outcomes)
