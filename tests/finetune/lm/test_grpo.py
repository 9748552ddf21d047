"""`--method grpo` on sampled answers, compared with PyTorch on the same answers."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner

from pockengine.api import compile
from pockengine.cli.finetune_lm import finetune_lm
from pockengine.errors import FinetuneError, PockEngineError
from pockengine.finetune.lm.methods import Drawing, Method
from pockengine.finetune.lm.prepare import prepare
from pockengine.finetune.lm.rollouts import Rollouts, advantages, draw_seed
from pockengine.finetune.lm.settings import Settings, Texts, TrainingSettings
from pockengine.finetune.lm.written import write_merged
from pockengine.finetune.task import IGNORED
from pockengine.tests.finetune.lm.decoders import save

LENGTH, RATE, TOKENS = 32, 0.05, 6
PROMPTS = [{"prompt": f"say {letter}", "letter": letter} for letter in "aeiou"]


def share(line: Mapping[str, Any], answer: str) -> float:
    """Return the share of an answer's letters that are vowels."""
    return sum(letter in "aeiou" for letter in answer) / TOKENS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("decoder"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, PROMPTS)))
    return path


def loss_of(model: Any, inputs: Mapping[str, np.ndarray]) -> torch.Tensor:
    """Return the loss as defined by TRL: clipped ratios per token, averaged per answer."""
    ids, labels = (torch.tensor(inputs[name]) for name in ("input_ids", "labels"))
    rows = []
    for row, marks, advantage in zip(ids, labels, inputs["rating"], strict=True):
        own = model(input_ids=row[None]).logits[0, :-1].log_softmax(-1)
        tokens = own.gather(1, row[1:, None])[:, 0][marks[1:] != IGNORED]
        ratio = torch.exp(tokens - tokens.detach())
        clipped = ratio.clamp(0.8, 1.2)
        rows.append(-torch.minimum(ratio * float(advantage), clipped * float(advantage)).mean())
    return torch.stack(rows).mean()


def test_ten_steps_match_pytorch(folder: Path, data: Path, tmp_path: Path) -> None:
    name = f"{__name__}:share"
    method = Method("grpo", drawing=Drawing(name, group=3, tokens=TOKENS))
    course = TrainingSettings(LENGTH, batch=6, method=method)
    prepared = prepare(Settings(folder, Texts(data, hold_out=0.0), course))
    assert prepared.prompts is not None
    compiled = compile(
        *(prepared.graph, None),
        scheme="full",
        optimizer="sgd",
        outputs=method.outputs,
        entries=prepared.entries,
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    messages: list[str] = []
    drawn = Rollouts(prepared.prompts, prepared.tokenizer, 6, LENGTH, messages.append)
    assert drawn.batches == 2  # five prompts, two a step
    with compiled.session() as session:
        drawn.on_begin(session)
        for _, batch in zip(range(10), drawn.training(0, 0, None), strict=False):
            ours = session.train_step(batch.inputs, lr=RATE)
            loss = loss_of(model, batch.inputs)
            assert float(ours["loss"]) == pytest.approx(float(loss.detach()), abs=1e-6)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert (batch.epoch, batch.last) == (4, True)
        write_merged(prepared.model, prepared.graph, session, tmp_path / "merged")
    trained = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    for one, weight in zip(trained.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, weight, rtol=1e-3, atol=1e-5)


def test_advantages_are_relative_to_the_group() -> None:
    found = advantages(np.array([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]]))
    np.testing.assert_allclose(found, [[-1 / 1.0001, 0, 1 / 1.0001], [0, 0, 0]])


def test_each_step_and_seed_samples_different_answers() -> None:
    seeds = {draw_seed(seed, step) for seed in (0, 1, 2**40) for step in range(3)}
    assert len(seeds) == 9
    assert max(seeds) < 2**32


def run(folder: Path, data: Path, out: Path, *options: str) -> dict[str, Any]:
    """Run the command; return its JSON output."""
    arguments = [str(folder), f"--data={data}", f"--out={out}", f"--max-length={LENGTH}", "--json"]
    always = ["--method=grpo", "--batch=8", f"--answer-tokens={TOKENS}", f"--validation={data}"]
    result = CliRunner().invoke(
        finetune_lm, [*arguments, *always, *options], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    facts: dict[str, Any] = json.loads(result.stdout)
    return facts


def test_rewards_grow_and_training_resumes(
    folder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vowels.py").write_text(
        "def share(line, answer):\n    return sum(x in 'aeiou' for x in answer) / 6\n"
    )
    options = ("--reward=vowels:share", "--steps=24", "--save-every=12", "--lr=0.02")
    whole = run(folder, data, tmp_path / "whole", "--scheme=full", *options)
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    max((tmp_path / "parts/checkpoints").glob("step-*")).unlink()
    resumed = run(folder, data, tmp_path / "parts", "--scheme=full", *options, "--resume")

    assert whole["after"]["reward"] > whole["before"]["reward"] + 0.5
    assert whole["after"]["prompts"] == len(PROMPTS)
    assert resumed["after"] == whole["after"]


def nothing(line: Mapping[str, Any], answer: str) -> None:
    """Return no reward."""


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ((), "--method grpo needs --reward: only grpo rewards"),
        (("--reward=no_such_module:f",), "no_such_module:f: ModuleNotFoundError.*function\\(line"),
        ((f"--reward={__name__}:share", "--group=1"), "--group is 1; give at least 2"),
        ((f"--reward={__name__}:share", "--group=3"), "--batch is 8, and .* draws 3 answers"),
        ((f"--reward={__name__}:share", "--batch=32"), "leaves 5 prompts .* a step takes 8"),
        ((f"--reward={__name__}:share", "--answer-tokens=31"), "5 prompts leave no room"),
        ((f"--reward={__name__}:nothing",), "nothing returned None for an answer to line 1;"),
    ],
)
def test_invalid_sampling_options_are_refused(
    options: tuple[str, ...], fact: str, folder: Path, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(PockEngineError, match=fact):
        run(folder, data, tmp_path / "out", *options)


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        (
            ("--method=grpo", "--beta=0.1"),
            "--method grpo does not read --beta; dpo, ipo, orpo, kto",
        ),
        (("--method=dpo", "--group=4"), "--method dpo does not read --group; grpo does"),
    ],
)
def test_options_of_other_methods_are_refused(
    options: tuple[str, ...], fact: str, folder: Path, data: Path, tmp_path: Path
) -> None:
    arguments = [str(folder), f"--data={data}", f"--out={tmp_path / 'out'}", *options]
    result = CliRunner().invoke(finetune_lm, arguments)
    assert result.exit_code == 2
    assert fact in " ".join(result.output.replace("│", " ").split())


def test_prompt_must_end_with_a_user_message(folder: Path, tmp_path: Path) -> None:
    answered = [{"role": "assistant", "content": "a"}]
    (tmp_path / "bad.jsonl").write_text(json.dumps({"prompt": answered}))
    with pytest.raises(FinetuneError, match=r"line 1 is not an example.*no last message"):
        run(folder, tmp_path / "bad.jsonl", tmp_path / "out", f"--reward={__name__}:share")
