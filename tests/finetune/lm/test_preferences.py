"""Preference methods of `finetune-lm` compared with PyTorch: losses, scores, resuming."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from safetensors.numpy import save_file as save_numpy
from safetensors.torch import save_file
from torch.nn import functional as F

from pockengine.api import compile
from pockengine.cli.finetune_lm import finetune_lm
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Builder, Graph
from pockengine.compiler.options import Training
from pockengine.compiler.sparse.lora import lora
from pockengine.errors import FinetuneError
from pockengine.finetune.lm.losses import LOSSES_OF, Terms, margin
from pockengine.finetune.lm.losses import PAIRS as PAIRED
from pockengine.finetune.lm.methods import Method, set_loss
from pockengine.finetune.lm.prepare import prepare
from pockengine.finetune.lm.reference import read_reference, set_reference
from pockengine.finetune.lm.settings import Settings, Texts, TrainingSettings
from pockengine.finetune.lm.texts import read_pairs
from pockengine.models.causal_lm import shapes_graph
from pockengine.tests.finetune.lm.decoders import WORDS, llama, save

LENGTH, RATE = 64, 0.05
COMPARING = [name for name, loss in LOSSES_OF.items() if loss.form == PAIRED]
PAIRS = [
    {"prompt": f"a {animal} says", "chosen": f" {right}", "rejected": f" {wrong}"}
    for animal, right, wrong in (
        ("cat", "miau", "wuff wuff"),
        ("dog", "wuff", "muuh"),
        ("cow", "muuh", "huu and miau"),
        ("owl", "huu huu", "miau"),
    )
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("decoder"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, PAIRS)))
    return path


def log_probabilities(model: Any, words: Any, pair: dict[str, str], answer: str) -> torch.Tensor:
    """Return PyTorch's log-probabilities of an answer's tokens, evaluated in a separate row."""
    start = len(words(pair["prompt"])["input_ids"])
    ids = torch.tensor([[*words(pair["prompt"] + pair[answer])["input_ids"], 2]])
    logits = model(input_ids=ids).logits[0, :-1]
    taken = logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    return taken[start - 1 :]


def loss_of(method: Method, chosen: Any, rejected: Any, reference: float) -> torch.Tensor:
    """Return the loss of one pair, as defined in the papers."""
    if method.name == "dpo":
        return -F.logsigmoid(method.beta * (chosen.sum() - rejected.sum() - reference))
    margin = chosen.mean() - rejected.mean()
    if method.name == "ipo":
        return (margin - reference - 1 / (2 * method.beta)) ** 2
    odds = [p.mean() - torch.log(1 - p.mean().exp()) for p in (chosen, rejected)]
    return -chosen.mean() - method.beta * F.logsigmoid(odds[0] - odds[1])


@pytest.mark.parametrize("name", COMPARING)
def test_losses_of_ten_steps_match_pytorch(name: str, folder: Path, data: Path) -> None:
    method = Method(name, beta=0.3)
    course = TrainingSettings(LENGTH, batch=2, method=method)
    settings = Settings(folder, Texts(data, hold_out=0.0), course)
    prepared = prepare(settings)
    compiled = compile(prepared.graph, None, scheme="full", optimizer="sgd", outputs=method.outputs)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    words = prepared.tokenizer
    optimizer = torch.optim.SGD(model.parameters(), RATE)

    def margin(pair: dict[str, str]) -> float:
        with torch.no_grad():
            both = (log_probabilities(model, words, pair, a) for a in ("chosen", "rejected"))
            c, r = ((p.sum() if name == "dpo" else p.mean()) for p in both)
            return float(c - r)

    before = [margin(pair) for pair in PAIRS] if method.refers else [0.0] * len(PAIRS)
    with compiled.session() as session:
        if method.refers:
            set_reference(session, prepared.training, course.batch)
            np.testing.assert_allclose(
                prepared.training.arrays["reference"], before, rtol=1e-4, atol=1e-5
            )
        for step in range(10):
            places = np.arange(2) + step % 2 * 2
            inputs = {n: a[places] for n, a in prepared.training.arrays.items()}
            ours = session.train_step(inputs, lr=RATE)
            losses = []
            for place in places:
                chosen, rejected = (
                    log_probabilities(model, words, PAIRS[place], a) for a in ("chosen", "rejected")
                )
                losses.append(loss_of(method, chosen, rejected, before[place]))
            loss = torch.stack(losses).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert float(ours["loss"]) == pytest.approx(float(loss.detach()), rel=2e-4, abs=1e-6)
    assert step == 9


def test_certain_answers_have_a_finite_orpo_loss() -> None:
    """A mean log-probability of 0 has infinite odds; exp of one near 0 is 1 in f32."""
    certain = np.array([0, 0, -1, -1e-9], np.float32)
    g = Builder(Graph("orpo"))
    chosen, rejected = g.param("chosen", certain), g.param("rejected", certain[::-1].copy())
    terms = Terms(g, 0.5, chosen, rejected, margin(g, chosen, rejected))
    g.output("loss", g.reduce_mean(LOSSES_OF["orpo"].of(terms), axes=(0,)))
    compiled = compile(g.graph, None, scheme="full", optimizer="sgd", check=False)
    with compiled.session() as session:
        assert np.isfinite(session.train_step({}, lr=0.1)["loss"])
        for name in ("chosen", "rejected"):
            assert np.isfinite(session.get_param(name)).all()
        lowered = session.get_param("rejected") < certain[::-1]
    assert lowered.tolist() == [True, False, True, True]  # the second: its odds are far apart


@pytest.mark.parametrize("name", ["dpo", "kto"])
def test_budget_below_the_logits_is_met(name: str) -> None:
    vocabulary, length, method = 8192, 256, Method(name)
    model = llama(vocab_size=vocabulary, max_position_embeddings=length, num_hidden_layers=1)
    graph = shapes_graph(model, 1, length)
    set_loss(graph, method)
    del graph.outputs["logits"]
    scheme, budget = lora(4, 8, ["*q_proj.weight"]), 4 * vocabulary * length * 4 // 5
    training = Training(scheme, outputs=method.outputs, memory_budget=budget)
    assert compile_program(graph, training).arena_bytes <= budget


REWARDS = (("chosen", 1.5), ("rejected", -0.25), ("rejected", 0.0), ("chosen", 0.5))
RATED: list[dict[str, Any]] = [
    {"prompt": pair["prompt"], "completion": pair[name], "label": name == "chosen", "reward": r}
    for pair, (name, r) in zip(PAIRS, REWARDS, strict=True)
]


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "rated.jsonl"
    path.write_text("\n".join(map(json.dumps, RATED)))
    return path


def rated_loss(method: Method, rows: list[dict[str, Any]], own: Any, other: Any) -> torch.Tensor:
    """Return the loss of a batch of answers, as defined in the KTO paper."""
    if method.name == "weighted":
        return -(torch.tensor([row["reward"] for row in rows]) * own).mean()
    labels = torch.tensor([1.0 if row["label"] else -1.0 for row in rows])
    drift = other.mean().detach().clamp(min=0)
    return (1 - torch.sigmoid(method.beta * labels * (own - drift))).mean()


@pytest.mark.parametrize("name", ["kto", "weighted"])
def test_losses_of_rated_answers_match_pytorch(name: str, folder: Path, rated: Path) -> None:
    method = Method(name, beta=0.3)
    course = TrainingSettings(LENGTH, batch=2, method=method)
    prepared = prepare(Settings(folder, Texts(rated, hold_out=0.0), course))
    compiled = compile(prepared.graph, None, scheme="full", optimizer="sgd", outputs=method.outputs)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    optimizer = torch.optim.SGD(model.parameters(), RATE)

    def answers(rows: list[dict[str, Any]], shift: int) -> torch.Tensor:
        found = []
        for place, row in enumerate(rows):
            text = {"prompt": row["prompt"], "chosen": rows[place - shift]["completion"]}
            tokens = log_probabilities(model, prepared.tokenizer, text, "chosen")
            found.append(tokens.sum() if method.refers else tokens.mean())
        return torch.stack(found)

    batches = [RATED[:2], RATED[2:]]
    with torch.no_grad():
        before = [[answers(rows, shift) * method.refers for shift in (0, 1)] for rows in batches]
    with compiled.session() as session:
        if method.refers:
            set_reference(session, prepared.training, course.batch)
        for step in range(10):
            inputs = {n: a[step % 2 * 2 :][:2] for n, a in prepared.training.arrays.items()}
            ours = session.train_step(inputs, lr=RATE)
            rows, (own, other) = batches[step % 2], before[step % 2]
            loss = rated_loss(method, rows, answers(rows, 0) - own, answers(rows, 1) - other)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert float(ours["loss"]) == pytest.approx(float(loss.detach()), rel=2e-4, abs=1e-6)


def test_rated_answers_train_and_resume(folder: Path, rated: Path, tmp_path: Path) -> None:
    options = ("--method=kto", "--epochs=3", "--save-every=2", "--lora-plus=2")
    whole = run(folder, rated, tmp_path / "whole", *options)
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    max((tmp_path / "parts/checkpoints").glob("step-*")).unlink()
    resumed = run(folder, rated, tmp_path / "parts", *options, "--resume")
    assert whole["after"]["loss"] < whole["before"]["loss"]
    assert whole["after"]["rated"] == len(RATED)
    assert resumed["after"] == whole["after"]
    assert resumed["before"] == whole["before"]


def run(folder: Path, data: Path, out: Path, *options: str) -> dict[str, Any]:
    """Run the command; return its JSON output."""
    arguments = [str(folder), f"--data={data}", f"--out={out}", f"--max-length={LENGTH}", "--json"]
    always = ["--batch=2", "--lr=0.01", "--answer-tokens=2", f"--validation={data}"]
    result = CliRunner().invoke(
        finetune_lm, [*arguments, *always, *options], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    facts: dict[str, Any] = json.loads(result.stdout)
    return facts


def test_resumed_training_uses_the_first_reference(
    folder: Path, data: Path, tmp_path: Path
) -> None:
    options = ("--method=dpo", "--beta=0.5", "--epochs=4", "--save-every=2")
    whole = run(folder, data, tmp_path / "whole", *options)
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    max((tmp_path / "parts/checkpoints").glob("step-*")).unlink()
    resumed = run(folder, data, tmp_path / "parts", *options, "--resume")

    assert whole["before"]["loss"] == pytest.approx(np.log(2), rel=1e-5)  # no margin yet
    assert whole["after"]["loss"] < whole["before"]["loss"]
    assert whole["after"]["pairs"] == len(PAIRS)
    assert resumed["after"] == whole["after"]


def test_error_names_damaged_margins(folder: Path, data: Path, tmp_path: Path) -> None:
    course = TrainingSettings(LENGTH, method=Method("dpo"))
    rows = prepare(Settings(folder, Texts(data, hold_out=0.0), course)).training
    for text in ("", "[[1, 2]]", "{}", '["a"]'):
        (tmp_path / "reference.json").write_text(text)
        with pytest.raises(FinetuneError, match=r"reference\.json is damaged.*another --out"):
            read_reference(tmp_path / "reference.json", [rows])


def test_message_pairs_include_earlier_turns(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    prompt = [*turns, {"role": "user", "content": "three"}]
    answers = {n: [{"role": "assistant", "content": n}] for n in ("chosen", "rejected")}
    (tmp_path / "a.jsonl").write_text(json.dumps({"prompt": prompt, **answers}))
    (pair,) = read_pairs(tmp_path / "a.jsonl")
    assert pair.chosen.messages == [*prompt, *answers["chosen"]]
    assert pair.rejected.messages == [*prompt, *answers["rejected"]]
    assert pair.chosen.first == len(prompt)


@pytest.mark.parametrize(
    ("row", "options", "fact"),
    [
        (
            {"prompt": "a", "chosen": "b"},
            (),
            "line 1 is not an example: it has no 'rejected'; a line",
        ),
        ({"prompt": "a", "chosen": "b", "rejected": " "}, (), "1 pairs lack an answer"),
        ({"prompt": "a", "chosen": "b", "rejected": "c" * LENGTH}, (), "need over 64 tokens"),
        (PAIRS[0], ("--truncate",), "--truncate cuts texts, and --method dpo compares"),
        (PAIRS[0], ("--beta=0",), "beta is 0; give a number above 0"),
    ],
)
def test_invalid_pairs_and_options_are_refused(
    row: dict[str, str], options: tuple[str, ...], fact: str, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.jsonl").write_text(json.dumps(row))
    with pytest.raises(FinetuneError, match=fact):
        run(folder, tmp_path / "bad.jsonl", tmp_path / "out", "--method=dpo", *options)


@pytest.mark.parametrize("count", [5, None])
def test_distillation_matches_pytorch(
    count: int | None, folder: Path, rated: Path, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    words = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    rows = [[*words(row["prompt"] + row["completion"])["input_ids"], 2] for row in RATED]
    teacher = [torch.randn(len(ids), WORDS) * 2 for ids in rows]
    top = [logits.topk(count or WORDS) for logits in teacher]
    stored = {f"logits.{n}": each.values for n, each in enumerate(top, 1)}
    if count:
        stored |= {f"indices.{n}": each.indices.int() for n, each in enumerate(top, 1)}
    else:
        stored = {f"logits.{n}": logits for n, logits in enumerate(teacher, 1)}
    save_file(stored, tmp_path / "teacher.safetensors")
    method = Method("distill", teacher=tmp_path / "teacher.safetensors")
    course = TrainingSettings(LENGTH, batch=4, method=method)
    prepared = prepare(Settings(folder, Texts(rated, hold_out=0.0), course))
    compiled = compile(prepared.graph, None, scheme="full", optimizer="sgd", outputs=method.outputs)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    with compiled.session() as session:
        for _ in range(10):
            ours = float(session.train_step(prepared.training.arrays, lr=RATE)["loss"])
            losses = []
            for ids, row, each in zip(rows, RATED, top, strict=True):
                q = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
                p = each.values.softmax(-1)
                kl = (p * (p.log() - q.gather(1, each.indices))).sum(-1)
                losses.append(kl[len(words(row["prompt"])["input_ids"]) - 1 : -1].mean())
            loss = torch.stack(losses).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert ours == pytest.approx(float(loss.detach()), rel=2e-4)


def _logits(folder: Path, width: int = WORDS) -> dict[str, np.ndarray]:
    """Return logits of every row."""
    words = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    lengths = [len(words(row["prompt"] + row["completion"])["input_ids"]) + 1 for row in RATED]
    return {f"logits.{n}": np.zeros((size, width), np.float32) for n, size in enumerate(lengths, 1)}


def test_logits_for_other_texts_are_refused(folder: Path, rated: Path, tmp_path: Path) -> None:
    place, method = tmp_path / "t.safetensors", "--method=distill"
    with pytest.raises(FinetuneError, match="--method distill needs --teacher: only"):
        run(folder, rated, tmp_path / "out", method)
    infinite = _logits(folder)
    infinite["logits.2"][3, 5] = np.inf
    for tensors, fact in (
        (_logits(folder, 4), "4 logits per token and no indices"),
        ({"logits.1": np.zeros((3, WORDS), np.float32)}, r"logits\.\d must be .*same texts"),
        ({"a": np.zeros(3, np.float32)}, r"store tensors logits\.LINE"),
        (infinite, r"t\.safetensors: logits\.2 has numbers .* not finite in row 3"),
    ):
        save_numpy(tensors, place)
        course = TrainingSettings(LENGTH, method=Method("distill", teacher=place))
        with pytest.raises(FinetuneError, match=fact):
            prepare(Settings(folder, Texts(rated, hold_out=0.0), course))


@pytest.mark.parametrize(
    ("row", "options", "fact"),
    [
        ({"prompt": "a", "completion": "b"}, ("--method=kto",), "it has no 'label'; a line"),
        ({**RATED[0], "label": 1}, ("--method=kto",), "label is 1, not true or false"),
        ({**RATED[0], "reward": 10**400}, ("--method=weighted",), "not a number below 1e"),
        ({**RATED[0], "reward": True}, ("--method=weighted",), "reward is true, not a number"),
        (RATED[0], ("--method=kto", "--batch=1"), "--batch is 1; give at least 2"),
        ({**RATED[0], "completion": "c" * LENGTH}, ("--method=kto",), "leaves no answer .*32"),
    ],
)
def test_malformed_ratings_are_refused(
    row: dict[str, Any], options: tuple[str, ...], fact: str, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.jsonl").write_text(json.dumps(row))
    with pytest.raises(FinetuneError, match=fact):
        run(folder, tmp_path / "bad.jsonl", tmp_path / "out", *options)
