"""Trials for other processes: model and data are stored once in a folder, jobs refer to them.

A pickled job takes a few hundred bytes. Workers read model and data once and cache them; arrays are
mapped, so the workers of one machine share the memory. Every worker must see the folder under the
same path.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from pockengine.compiler.sparse import Scheme
from pockengine.files import place_once
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.subject import Subject, load_subject
from pockengine.finetune.task import Examples
from pockengine.finetune.trial import TrialOutcome, artifact_place, run_trial
from pockengine.finetune.trial_channels import settle_channels

_NAMES, _LABELS = "inputs.json", "labels.npy"


@dataclass(frozen=True)
class TrialJob:
    """The arguments of `run_trial`, with subject and data by their digests in `folder`."""

    folder: Path
    subject: str
    train: str
    judged: str
    scheme: Scheme
    recipe: Recipe


def put_subject(folder: Path, subject: Subject) -> str:
    """Store a subject for the workers; return its digest."""
    digest = subject.digest()
    place_once(folder / "subjects" / digest, subject.save)
    return digest


def put_examples(folder: Path, examples: Examples) -> str:
    """Store examples for the workers; return their digest."""
    digest = examples.digest()
    place_once(folder / "data" / digest, lambda place: _save_examples(examples, place))
    return digest


def run_job(job: TrialJob) -> TrialOutcome:
    """Run a trial in a worker."""
    subject = _subject(job.folder / "subjects" / job.subject)
    train = _examples(job.folder / "data" / job.train)
    judged = _examples(job.folder / "data" / job.judged)
    return run_trial(
        subject, job.scheme, job.recipe, training=train, judged=judged, folder=job.folder
    )


def forget(job: TrialJob) -> None:
    """Delete the artifact of a job's scheme, which holds a copy of all weights.

    No job of this scheme may be running.
    """
    subject = _subject(job.folder / "subjects" / job.subject)
    train = _examples(job.folder / "data" / job.train)
    scheme = settle_channels(subject, job.scheme, train, job.folder)
    place = artifact_place(subject, scheme, job.recipe.optimizer, job.folder)
    shutil.rmtree(place, ignore_errors=True)


def _save_examples(examples: Examples, folder: Path) -> None:
    for index, array in enumerate(examples.inputs.values()):
        np.save(folder / f"{index}.npy", array, allow_pickle=False)
    np.save(folder / _LABELS, examples.labels, allow_pickle=False)
    (folder / _NAMES).write_text(json.dumps(list(examples.inputs)), encoding="utf-8")


@lru_cache(maxsize=2)
def _subject(folder: Path) -> Subject:
    return load_subject(folder)


@lru_cache(maxsize=4)
def _examples(folder: Path) -> Examples:
    names = json.loads((folder / _NAMES).read_text(encoding="utf-8"))
    inputs: Mapping[str, np.ndarray] = {
        name: _mapped(folder / f"{index}.npy") for index, name in enumerate(names)
    }
    return Examples(inputs, _mapped(folder / _LABELS))


def _mapped(path: Path) -> np.ndarray:
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
