"""The whole comparison on a small CNN and the digits: every step runs, and none is repeated."""

import os
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from pockengine import from_torch
from pockengine.farm.results.results import Record
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Examples, Task, split
from pockengine.models.cnn import SmallCNN
from pockengine.studies.sparse.control import train_in_torch
from pockengine.studies.sparse.desk import TEST, Desk, LoadedPair, Trial, run_trials
from pockengine.studies.sparse.journal import Journal
from pockengine.studies.sparse.plan import PICTURES, Effort, Pair, quick
from pockengine.studies.sparse.report import write_report
from pockengine.studies.sparse.runner import lay_table, study_table
from pockengine.studies.sparse.schemes import fixed_schemes
from pockengine.studies.sparse.sizes import Sizes
from pockengine.studies.sparse.subjects import ADAM, Model, StudyFolders

EFFORT = replace(
    quick(PICTURES), epochs=2, seeds=(0, 1), probe_train=160, probe_validation=80, upper=0.4
)


class Idle(Executor):
    """An executor that fails if a study repeats a run."""

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Refuse."""
        raise AssertionError(f"{function} was submitted again")


def cnn() -> nn.Module:
    torch.manual_seed(0)
    return SmallCNN(width=8).eval()


def digits_table() -> LoadedPair:
    data = load_digits()
    images = (data.images[:480, None] / 8 - 1).astype(np.float32)
    examples = Examples({"x": images}, data.target[:480].astype(np.int64))
    tuning = split(examples.take(np.arange(320)), 80, seed=0)
    task = Task("digits", 10, tuning, examples.take(np.arange(320, 480)))
    graph = from_torch(cnn(), (torch.zeros(16, 1, 8, 8),), loss="cross_entropy")
    model = Model("small_cnn", "", 8, (3e-3, 1e-2), last=1, optimizer=ADAM)
    subject = Subject("small_cnn", graph, "output")
    return LoadedPair(Pair("small_cnn", "digits"), model, EFFORT, subject, task, cnn)


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def desk(folder: Path, executor: Executor, data: Path = Path("none")) -> Desk:
    places = StudyFolders(data, None, folder / "cache")
    journal = Journal(folder / "out" / "sparse-trials.jsonl")
    return Desk(places, journal, executor, "abcdef", lambda text: None)


def test_study_runs_whole_once_and_keeps_test_apart(tmp_path: Path, executor: Executor) -> None:
    table, first = digits_table(), desk(tmp_path, executor)
    study_table(first, table, tmp_path / "out", controls=True, criteria=True)

    validation = table.task.tuning.validation.digest()[:12]
    for key, _ in first.journal.entries(kind="trial"):
        final = key["purpose"] in ("final", "criteria")
        assert (key["judged_by"] == validation) != final
    control = next(result for _, result in first.journal.entries(kind="control"))
    full = [
        result["accuracy"]
        for key, result in first.journal.entries(purpose="final", scheme="full", seed=0)
    ]
    assert abs(control["accuracy"] - full[0]) <= 3 / len(table.task.test)

    page = write_report(first.journal, tmp_path / "out").read_text()
    for named in ("| head-only |", "| quarter by fisher |", "sparse-accuracy.png", "| random |"):
        assert named in page
    lines = (tmp_path / "out" / "sparse-records.jsonl").read_text().splitlines()
    metrics = {Record.from_json(line).metric for line in lines}
    assert {"accuracy", "extra_arena_bytes", "optimizer_state_bytes", "step_ms"} <= metrics

    size = first.journal.path.stat().st_size
    study_table(desk(tmp_path, Idle()), table, tmp_path / "out", controls=True, criteria=True)
    assert first.journal.path.stat().st_size == size


def test_mcunet_learns_as_in_pytorch(tmp_path: Path, executor: Executor) -> None:
    folder = os.environ.get("POCKENGINE_DATA")
    if not folder:
        pytest.skip("POCKENGINE_DATA is not set; it names the folder of weights and pictures")
    effort: Effort = replace(EFFORT, sizes=Sizes(48, 32, 96))
    laid = desk(tmp_path, executor, Path(folder))
    table = lay_table(laid, Pair("mcunet-5fps", "cifar10"), effort)
    full = fixed_schemes(table.model, table.subject.graph)[0]
    recipe = Recipe(3e-4, 2, 0, ADAM)
    trial = Trial(full, recipe, TEST, "final")
    ours = run_trials(laid, table, [trial])[trial]
    theirs = train_in_torch(table.load(), recipe, table.task, table.subject.batch)
    assert abs(ours.score - theirs) <= 4 / 96
