"""A decoder as a subject: split texts, judged by loss, with matrices and norms as items."""

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from pockengine.compiler.optim import AdamW
from pockengine.compiler.sparse import ParamChoice, Scheme, preset
from pockengine.errors import FinetuneError, ImportModelError
from pockengine.finetune.judges import HELD_OUT
from pockengine.finetune.lm.settings import Texts
from pockengine.finetune.lm.subject import decoder_subject, text_rows, text_tuning
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.space import bias_groups, head_of, items_of, scheme_of
from pockengine.finetune.subject import Subject, load_subject
from pockengine.finetune.task import IGNORED, Examples
from pockengine.finetune.trial import TrialOutcome, run_trial
from pockengine.finetune.trial_channels import settle_channels
from pockengine.tests.finetune.lm.decoders import save

LENGTH, BATCH = 32, 2
WORDS = ("cat", "dog", "cow", "owl", "hen", "pig", "fox", "bee", "ant", "elk", "emu", "yak")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("decoder"))


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    path = tmp_path_factory.mktemp("data") / "facts.jsonl"
    rows = [{"prompt": f"a {word} ", "completion": f"says {word}"} for word in WORDS]
    path.write_text("\n".join(map(json.dumps, rows)))
    return Texts(path, hold_out=0.5)


@pytest.fixture(scope="module")
def subject(folder: Path) -> Subject:
    return decoder_subject(folder, BATCH, LENGTH)


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trials")


def animals_in(folder: Path, examples: Examples) -> set[str]:
    """Return the animals in the rows."""
    words = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    text = " ".join(words.decode(row) for row in examples.inputs["input_ids"])
    return {word for word in WORDS if word in text}


def trial(
    subject: Subject, folder: Path, texts: Texts, trials: Path, rate: float, name: str = "full"
) -> TrialOutcome:
    tuning, _ = text_tuning(folder, texts, LENGTH, 0)
    recipe = Recipe(rate, 6, optimizer=AdamW())
    scheme = preset(name, subject.graph)
    return run_trial(subject, scheme, recipe, tuning.train, tuning.validation, trials)


def test_training_and_validation_texts_are_disjoint(folder: Path, texts: Texts) -> None:
    tuning, remarks = text_tuning(folder, texts, LENGTH, 0)
    parts = [animals_in(folder, part) for part in (tuning.train, tuning.validation)]

    assert [len(part) for part in parts] == [6, 6]
    assert parts[0] | parts[1] == set(WORDS)
    assert not remarks
    assert animals_in(folder, text_rows(folder, texts, LENGTH)) == set(WORDS)


def test_score_is_the_held_out_loss_of_pytorch(
    subject: Subject, folder: Path, texts: Texts, trials: Path
) -> None:
    outcome = trial(subject, folder, texts, trials, rate=0.0)
    validation = text_tuning(folder, texts, LENGTH, 0)[0].validation
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    total, count = 0.0, 0
    for ids, labels, places in zip(
        validation.inputs["input_ids"],
        validation.labels,
        validation.inputs["position_ids"],
        strict=True,
    ):
        starts = [*np.flatnonzero(places == 0), LENGTH]
        for begin, end in pairwise(starts):
            tokens = int((labels[begin + 1 : end] != IGNORED).sum())
            if tokens:
                row = torch.from_numpy(np.stack([ids[begin:end], labels[begin:end]]))
                with torch.no_grad():
                    loss = model(input_ids=row[:1], labels=row[1:]).loss
                total, count = total + float(loss) * tokens, count + tokens

    assert -outcome.score == pytest.approx(total / count, rel=1e-5)
    assert min(outcome.parts) <= outcome.score <= max(outcome.parts)


def test_more_training_lowers_the_loss_more(
    subject: Subject, folder: Path, texts: Texts, trials: Path
) -> None:
    before = trial(subject, folder, texts, trials, 0.0).score
    head = trial(subject, folder, texts, trials, 0.02, "head-only").score

    assert before < head < trial(subject, folder, texts, trials, 0.02).score


def test_divergence_is_an_infinite_loss(
    subject: Subject, folder: Path, texts: Texts, trials: Path
) -> None:
    outcome = trial(subject, folder, texts, trials, 1e30)

    assert outcome.diverged
    assert outcome.score == -math.inf
    assert outcome.parts == ()


def test_items_are_matrices_and_norms_of_last_blocks(subject: Subject) -> None:
    graph = subject.graph
    items = items_of(graph, (1.0,))
    norms = ("input_layernorm.weight", "post_attention_layernorm.weight")

    assert head_of(graph) == ("model.norm.weight",)
    assert bias_groups(graph) == [
        tuple(f"model.layers.{block}.{name}" for name in norms) for block in (0, 1)
    ]
    assert [item.name for item in items[:2]] == ["last 1 blocks", "last 2 blocks"]
    assert sum(item.kind == "weight" for item in items) == 2 * 7 + 1  # plus the head's matrix
    assert set(scheme_of(graph, items[:1]).resolve(graph)) == {
        "model.norm.weight",
        *bias_groups(graph)[1],
    }


def test_subject_round_trips(subject: Subject, tmp_path: Path) -> None:
    subject.save(tmp_path)
    again = load_subject(tmp_path)

    assert (again.judge, again.target, again.batch) == (HELD_OUT.name, "labels", BATCH)
    assert again.digest() == subject.digest()


@pytest.mark.parametrize("by", ["activation", "fisher"])
def test_channels_are_selected_by_texts(
    subject: Subject, folder: Path, texts: Texts, trials: Path, by: str
) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    scheme = Scheme("some", ((name, ParamChoice("share", share=0.25, by=by)),))
    settled = settle_channels(
        subject, scheme, text_tuning(folder, texts, LENGTH, 0)[0].train, trials
    )

    assert len(settled.choices(subject.graph)[name].channels) == 8


def test_errors_name_unusable_validation_texts(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("a short text")

    with pytest.raises(FinetuneError, match="1 examples, and none can be held out to judge"):
        text_tuning(folder, Texts(path), LENGTH, 0)
    with pytest.raises(ImportModelError, match="--max-length 65 is beyond the 64 tokens"):
        decoder_subject(folder, BATCH, 65)


def test_error_names_rows_of_another_length(
    subject: Subject, folder: Path, texts: Texts, trials: Path
) -> None:
    rows = text_rows(folder, texts, LENGTH // 2)

    with pytest.raises(
        FinetuneError, match=r"reads input_ids as rows \[32\]; the data have \[16\]"
    ):
        run_trial(subject, preset("full", subject.graph), Recipe(0.1, 1), rows, rows, trials)
