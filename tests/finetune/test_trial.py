"""A trial is a real training in C: it learns, is deterministic, and survives bad rates."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.registry import open_session
from pockengine.compiler.sparse import ParamChoice, Scheme, preset
from pockengine.errors import FinetuneError
from pockengine.finetune.recipe import Recipe, order
from pockengine.finetune.selection import channel_scores
from pockengine.finetune.subject import load_subject
from pockengine.finetune.task import Examples
from pockengine.finetune.trial import TrialOutcome, check_examples, run_trial
from pockengine.finetune.trial import compiled as compiled_artifact
from pockengine.finetune.trial_channels import settle_channels
from pockengine.finetune.verdict import logits_of
from pockengine.tests.finetune.tiny import digits, tiny_subject, tiny_tuning

SUBJECT = tiny_subject()
TUNING = tiny_tuning()
RECIPE = Recipe(0.05, 3)


@pytest.fixture(name="folder", scope="module")
def artifact_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of this module's artifacts."""
    return tmp_path_factory.mktemp("trials")


def trial(folder: Path | None, scheme: str = "full", recipe: Recipe = RECIPE) -> TrialOutcome:
    preset_scheme = preset(scheme, SUBJECT.graph)
    return run_trial(SUBJECT, preset_scheme, recipe, TUNING.train, TUNING.validation, folder)


def test_training_more_learns_more(folder: Path) -> None:
    full, head = trial(folder), trial(folder, "head-only")

    assert full.score > head.score > 0.5
    assert full.steps == head.steps == 3 * 19  # 300 examples in batches of 16, the last one padded
    assert not full.diverged


def test_same_seed_gives_the_same_outcome_bit_for_bit(folder: Path) -> None:
    first, again, compiled_again = trial(folder), trial(folder), trial(None)

    assert replace(first, seconds=0.0) == replace(again, seconds=0.0)
    assert replace(first, seconds=0.0) == replace(compiled_again, seconds=0.0)
    assert trial(folder, recipe=replace(RECIPE, seed=1)).loss != first.loss


def test_divergence_is_an_outcome(folder: Path) -> None:
    outcome = trial(folder, recipe=replace(RECIPE, rate=1e9))

    assert outcome.diverged
    assert np.isnan(outcome.loss)
    assert outcome.steps < 3 * 19
    assert outcome.score <= 0.2  # NaN logits do not count as correct


def test_seed_and_rate_recompile_nothing(folder: Path) -> None:
    trial(folder)
    before = {path: path.stat().st_mtime_ns for path in (folder / "artifacts").iterdir()}
    trial(folder, recipe=Recipe(0.01, 1, seed=5))

    assert {p: p.stat().st_mtime_ns for p in (folder / "artifacts").iterdir()} == before


def test_evaluation_pads_and_truncates_the_last_batch(folder: Path) -> None:
    artifact = compiled_artifact(SUBJECT, preset("full", SUBJECT.graph), RECIPE.optimizer, folder)
    with open_session(artifact) as session:
        logits = logits_of(session, digits(37), "logits")
        whole = logits_of(session, digits(48), "logits")

    assert np.array_equal(logits, whole[:37])


def test_labels_out_of_range_are_an_error(folder: Path) -> None:
    wrong = Examples(TUNING.train.inputs, TUNING.train.labels + 5)

    with pytest.raises(FinetuneError, match="labels from 5 to 14"):
        run_trial(SUBJECT, preset("full", SUBJECT.graph), RECIPE, wrong, wrong, folder)


def test_inputs_of_another_type_are_an_error() -> None:
    wide = {name: array.astype(np.float64) for name, array in TUNING.train.inputs.items()}

    with pytest.raises(FinetuneError, match=r"as float32; .* have float64: .* by x\.astype\(numpy"):
        check_examples(SUBJECT, Examples(wide, TUNING.train.labels))


def test_subject_round_trips(tmp_path: Path) -> None:
    SUBJECT.save(tmp_path)

    assert load_subject(tmp_path).digest() == SUBJECT.digest()
    assert tiny_subject(seed=1).digest() != SUBJECT.digest()


@pytest.mark.parametrize("by", ["activation", "fisher"])
def test_channels_are_selected_by_training_examples(by: str, folder: Path) -> None:
    head = preset("head-only", SUBJECT.graph)
    share = ParamChoice("share", share=0.25, by=by)
    scheme = Scheme("quarter", (*head.rules, ("layers.1.weight", share)))
    settled = settle_channels(SUBJECT, scheme, TUNING.train, folder)
    chosen = settled.choices(SUBJECT.graph)["layers.1.weight"]
    scored = TUNING.train.take(order(len(TUNING.train), 0, 0))
    scores = channel_scores(SUBJECT.graph, ("layers.1.weight",), by, scored)
    outcomes = [
        run_trial(SUBJECT, each, RECIPE, TUNING.train, TUNING.validation, folder)
        for each in (scheme, settled)
    ]

    best = np.argsort(-scores["layers.1.weight"])[:2]
    assert chosen == ParamChoice("channels", channels=tuple(sorted(int(index) for index in best)))
    assert replace(outcomes[0], seconds=0.0) == replace(outcomes[1], seconds=0.0)
    assert settle_channels(SUBJECT, head, TUNING.train) is head
