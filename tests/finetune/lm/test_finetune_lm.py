"""`pockengine finetune-lm` from a folder to new weights, compared with transformers and PEFT."""

import json
import random
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
import transformers
from click.testing import CliRunner
from huggingface_hub import ModelCard

from pockengine.backends.training.callbacks import Callback
from pockengine.backends.training.loop import Step
from pockengine.cli.finetune_lm import REPORTS, finetune_lm
from pockengine.errors import FinetuneError, ImportModelError
from pockengine.finetune.lm import prepare
from pockengine.finetune.lm.callbacks import Estimate
from pockengine.finetune.lm.packing import pack
from pockengine.finetune.lm.tokens import Tokens
from pockengine.finetune.task import IGNORED
from pockengine.models.causal_lm import open_causal_lm
from pockengine.models.gguf_families import IN_BLOCK, WHOLE
from pockengine.models.shards import INDEX, shards_of
from pockengine.tests.finetune.lm.decoders import WORDS, llama, save, tokenizer
from pockengine.tests.fuzz.mutate import mutate
from pockengine.tests.models.gptq_folder import quantize_folder

LENGTH = 32
FACTS = ["a cat says miau", "a dog says wuff", "a cow says muuh", "an owl says huu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("decoder"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "facts.jsonl"
    rows = [{"prompt": text[:-5], "completion": text[-5:]} for text in FACTS * 3]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def finetuned(folder: Path, data: Path, out: Path, *options: str) -> dict[str, Any]:
    """Run the command; return its JSON output."""
    facts: dict[str, Any] = json.loads(printed(folder, data, out, "--json", *options))
    return facts


def printed(folder: Path, data: Path, out: Path, *options: str) -> str:
    """Run the command; return its output."""
    arguments = [str(folder), f"--data={data}", f"--out={out}", f"--max-length={LENGTH}"]
    always = ["--batch=2", "--lr=0.01", "--answer-tokens=4", f"--validation={data}"]
    result = CliRunner().invoke(
        finetune_lm, [*arguments, *always, *options], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.stdout


def loss_of(model: Any, tokens: list[Tokens]) -> float:
    """Return PyTorch's mean loss per token, with each text evaluated separately."""
    total, count = 0.0, 0
    with torch.no_grad():
        for text in tokens:
            ids, labels = torch.tensor([list(text.ids)]), torch.tensor([list(text.labels)])
            total += float(model(input_ids=ids, labels=labels).loss) * text.counted
            count += text.counted
    return total / count


def answers_of(model: Any, folder: Path, data: Path) -> list[str]:
    """Return transformers' answers of four tokens to the first three prompts."""
    words = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    prompts = [json.loads(line)["prompt"] for line in data.read_text().splitlines()[:3]]
    answers = []
    for prompt in prompts:
        ids = words(prompt, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            new = model.generate(ids, do_sample=False, max_new_tokens=4, pad_token_id=0)
        ends = model.generation_config.eos_token_id
        ends = [words.eos_token_id, *(ends if isinstance(ends, list) else [ends])]
        answers.append(words.decode([i for i in new[0, ids.shape[1] :] if i not in ends]))
    return answers


def no_cache(*_: Any) -> dict[str, Any]:
    raise ImportModelError("no cache of keys")


def texts_of(folder: Path, data: Path) -> list[Tokens]:
    words = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    ids = [[*words(row["prompt"] + row["completion"])["input_ids"], 2] for row in rows]
    starts = [len(row["prompt"]) for row in rows]
    both = zip(ids, starts, strict=True)
    return [Tokens(0, row, [IGNORED] * start + row[start:]) for row, start in both]


def test_adapters_learn_and_load_in_peft_and_transformers(
    folder: Path, data: Path, tmp_path: Path
) -> None:
    likeliest = ("--temperature=1", "--top-p=1e-6")  # only one token can be drawn
    facts = finetuned(folder, data, tmp_path / "out", "--epochs=3", "--accumulate=2", *likeliest)
    base = transformers.AutoModelForCausalLM.from_pretrained(folder)
    merged = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "merged")
    texts = texts_of(folder, data)

    assert facts["before"]["loss"] == pytest.approx(loss_of(base, texts), rel=1e-4)
    assert facts["after"]["loss"] == pytest.approx(loss_of(merged, texts), rel=1e-4)
    assert facts["after"]["loss"] < facts["before"]["loss"]
    assert facts["after"]["perplexity"] == pytest.approx(np.exp(facts["after"]["loss"]))
    assert facts["before"]["answers"] == answers_of(base, folder, data)
    assert facts["after"]["answers"] == answers_of(merged, folder, data)
    adapted = peft.PeftModel.from_pretrained(base, tmp_path / "out" / "adapter")
    assert loss_of(adapted, texts) == pytest.approx(loss_of(merged, texts), rel=1e-4)
    assert (tmp_path / "out" / "merged" / "tokenizer.json").is_file()
    for name, library in (("adapter", "peft"), ("merged", "transformers")):
        card = ModelCard.load(tmp_path / "out" / name / "README.md")
        assert card.data.base_model == folder.name
        assert card.data.library_name == library
        assert f"loss {facts['after']['loss']:.4f}" in card.text
        assert str(tmp_path) not in card.content
    assert f"{tmp_path}/out/adapter.gguf" in facts["written"]
    assert (tmp_path / "out" / "adapter.gguf").read_bytes().startswith(b"GGUF")


@pytest.mark.parametrize("cached", [True, False])
def test_answers_end_at_the_tokens_of_the_generation_config(
    folder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    copy = shutil.copytree(folder, tmp_path / "model")
    whole = answers_of(transformers.AutoModelForCausalLM.from_pretrained(folder), folder, data)
    ends = [2, tokenizer()(whole[2])["input_ids"][-1]]
    (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    if not cached:
        monkeypatch.setattr(prepare, "decoding_graphs", no_cache)
    facts = finetuned(copy, data, tmp_path / "out", "--steps=1", "--temperature=1", "--top-p=1e-6")
    stopped = transformers.AutoModelForCausalLM.from_pretrained(copy)
    assert facts["before"]["answers"] == answers_of(stopped, copy, data) != whole


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(  # within a window of micro-batches, by a cosine
            ("--save-every=1", "--accumulate=2"), marks=pytest.mark.nightly
        ),
        ("--save-every=2", "--schedule=constant", "--trained-weights=bf16", "--states=8bit"),
    ],
    ids=str,
)
def test_resumed_training_matches_an_uninterrupted_one(
    more: tuple[str, ...], folder: Path, data: Path, tmp_path: Path
) -> None:
    options = ("--scheme=full", *more)
    whole = finetuned(folder, data, tmp_path / "whole", "--epochs=2", *options)
    finetuned(folder, data, tmp_path / "parts", "--epochs=2", *options)
    checkpoints = sorted((tmp_path / "parts" / "checkpoints").glob("step-*"))
    checkpoints[-1].unlink()  # as after a kill before the last save
    again = ("--epochs=2", *options, "--resume", "--duty=50")  # pauses do not change results
    resumed = finetuned(folder, data, tmp_path / "parts", *again)
    asked = finetuned(folder, data, tmp_path / "parts", *again, "--prompt=a dog")
    assert len(checkpoints) == 2
    assert resumed["after"] == whole["after"]
    assert resumed["before"] == whole["before"]
    answers = [facts["before"]["answers"] for facts in (whole, asked)]
    assert [len(each) for each in answers] == [3, 1]
    shards = sorted(path.name for path in (tmp_path / "whole/merged").glob("*.safetensors"))
    assert shards
    for name in shards:
        parts = (tmp_path / "parts/merged" / name).read_bytes()
        assert parts == (tmp_path / "whole/merged" / name).read_bytes()
    with pytest.raises(FinetuneError, match="started with another epochs"):
        finetuned(folder, data, tmp_path / "parts", "--epochs=3", *options, "--resume")
    with pytest.raises(FinetuneError, match="--resume continues it"):
        finetuned(folder, data, tmp_path / "parts", "--epochs=2", *options)


def test_packed_texts_do_not_attend_to_each_other(folder: Path, data: Path) -> None:
    texts = texts_of(folder, data)[:2]
    rows = pack(texts, 2 * LENGTH)
    assert rows.rows == 1
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    model.config.use_cache = False
    arrays = {name: torch.from_numpy(array) for name, array in rows.arrays.items()}
    with torch.no_grad():
        assert float(model(**arrays).loss) == pytest.approx(loss_of(model, texts), rel=1e-5)


class StepLog(Callback):
    """A stand-in for TensorBoardLog, which has its own tests."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_step(self, step: Step) -> None:
        self.steps.append(step.number)


def test_bf16_shards_stay_bf16(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tmp_path / "half", llama().to(torch.bfloat16))
    log = StepLog()
    monkeypatch.setitem(REPORTS, "tensorboard", lambda out: log)
    options = ("--steps=2", "--frozen-weights=bf16", "--report-to=tensorboard")
    messages = printed(folder, data, tmp_path / "out", *options)
    assert not re.search(r"(?<!training )(?<!held-out )\bloss\b", " ".join(messages.split()))
    assert "compiled" not in messages  # progress is not part of the result
    for words in (f"reading {folder}", "compiling: scheme lora", "arena,"):
        assert words in messages.replace("\n", " ")  # progress messages
    assert log.steps == [1, 2]
    before = transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict()
    after = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out/merged").state_dict()
    changed = {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}
    assert all(tensor.dtype == torch.bfloat16 for tensor in after.values())
    assert any("q_proj" in name for name in changed)
    assert not any("o_proj" in name for name in changed)


def test_remaining_time_is_printed_once() -> None:
    messages: list[str] = []
    clock = iter((5.0, 25.0))
    estimate = Estimate(111, messages.append, lambda: next(clock))
    for number in range(1, 40):
        estimate.on_step(Step(number, 1, 0.5, 0.1, 1, False))
    assert messages == ["2 s per step: 3 min for the remaining steps"]


def test_gguf_file_is_tuned_and_written_as_gguf(folder: Path, data: Path, tmp_path: Path) -> None:
    """The file holds the folder's weights in F32, in llama.cpp's layout."""
    place = tmp_path / "gguf"
    shutil.copytree(folder, place)
    module = transformers.AutoModelForCausalLM.from_pretrained(folder)
    for path in place.glob("model*"):
        path.unlink()
    write_f32(place / "tiny.gguf", module)

    facts = finetuned(place, data, tmp_path / "out", "--steps=4")

    assert facts["before"]["loss"] == pytest.approx(loss_of(module, texts_of(folder, data)), 1e-4)
    merged = open_causal_lm(tmp_path / "out" / "merged").shards["tiny.gguf"]
    before = open_causal_lm(place).shards["tiny.gguf"]
    changed = {n for n in before if not np.array_equal(before[n].read(), merged[n].read())}
    assert {name.split(".")[-2] for name in changed} == {"norm", "q_proj", "v_proj"}


def write_f32(path: Path, module: Any) -> None:
    """Write a LLaMA in llama.cpp's layout: rows of queries and keys in interleaved pairs."""
    theirs = {ours: name for name, ours in {**WHOLE, **blocks()}.items()}
    config, table, data = module.config, b"", b""
    state = {theirs[name]: array.numpy() for name, array in module.state_dict().items()}
    for name, array in state.items():
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
        count = heads.get(name.split(".")[-2])
        if count is not None:
            rows = array.reshape(count, 2, -1, array.shape[1])
            array = np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(array.shape)
        table += struct.pack("<Q", len(name)) + name.encode()
        table += struct.pack(f"<I{array.ndim}Q", array.ndim, *reversed(array.shape))
        table += struct.pack("<IQ", 0, len(data))
        data += array.tobytes() + bytes(-array.nbytes % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(state), 0) + table
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def blocks() -> dict[str, str]:
    return {
        f"blk.{n}.{theirs}.weight": f"model.layers.{n}.{ours}.weight"
        for n in range(2)
        for theirs, ours in IN_BLOCK.items()
    }


def test_error_names_a_truncated_shard(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "cut")
    shard = sorted((tmp_path / "cut").glob("model-*"))[1]
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(ImportModelError, match=f"{shard.name} .*copy this shard again"):
        open_causal_lm(tmp_path / "cut")
    shard.unlink()
    with pytest.raises(ImportModelError, match=f"{INDEX} names it, and it is not there"):
        open_causal_lm(tmp_path / "cut")


def test_damaged_shards_raise_our_errors(folder: Path, tmp_path: Path) -> None:
    """Random bytes in headers and in the index raise only our own errors."""
    shutil.copytree(folder, tmp_path / "cut")
    shard = min((tmp_path / "cut").glob("model-*"))
    index = tmp_path / "cut" / INDEX
    config, rng, refused = transformers.AutoConfig.from_pretrained(folder), random.Random(0), 0
    for path in (shard, index):
        sound = path.read_bytes()
        for _ in range(300):
            path.write_bytes(mutate(sound[:600], rng) + sound[600:])
            try:
                shards_of(tmp_path / "cut", config)
            except ImportModelError as error:
                refused += str(tmp_path) in str(error)
        path.write_bytes(sound)
    assert refused > 300


@pytest.mark.parametrize(
    ("row", "fact"),
    [
        ('{"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}', "positive integers"),
        ('{"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}', "infinity"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_error_names_a_shard_with_a_damaged_header(
    folder: Path, tmp_path: Path, row: str, fact: str
) -> None:
    header = f'{{"x": {row}}}'.encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    with pytest.raises(ImportModelError, match=f"model.safetensors .*{fact}.*copy this shard"):
        shards_of(tmp_path, None)


def test_error_names_a_file_without_validation_examples(
    folder: Path, data: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "judging.jsonl"
    empty.write_text('{"text": " "}')
    with pytest.raises(
        FinetuneError, match=r"judging\.jsonl leaves no example \(.*: line 1\); give"
    ):
        finetuned(folder, data, tmp_path / "out", f"--validation={empty}")


def test_error_names_weights_of_another_model(folder: Path, tmp_path: Path) -> None:
    for name, value, message in (
        ("num_hidden_layers", 3, "holds no model.layers.2"),
        ("hidden_size", 64, "which is not f32"),
    ):
        place = tmp_path / name
        shutil.copytree(folder, place)
        table = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps({**table, name: value}))
        with pytest.raises(ImportModelError, match=message):
            open_causal_lm(place).graph(1, 8)


def test_invalid_plans_are_rejected_before_compilation(
    folder: Path, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(ImportModelError, match="beyond the 64 tokens"):
        finetuned(folder, data, tmp_path / "out", "--max-length=65")
    with pytest.raises(FinetuneError, match=r"12 examples are longer than 4 tokens"):
        finetuned(folder, data, tmp_path / "out", "--max-length=4")
    with pytest.raises(FinetuneError, match=r"--prompt 'a.udcff' is no text in UTF-8"):
        finetuned(folder, data, tmp_path / "out", "--prompt=a\udcff")
    classifier = save(tmp_path / "other")
    table = json.loads((classifier / "config.json").read_text())
    table["architectures"] = ["LlamaForSequenceClassification"]
    (classifier / "config.json").write_text(json.dumps(table))
    with pytest.raises(ImportModelError, match="predicts no next token"):
        finetuned(classifier, data, tmp_path / "out")


def test_gptq_trains_in_four_bits_and_merges_to_floats(data: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "model", tmp_path / "out"
    module = quantize_folder(folder, vocab_size=WORDS)
    tokenizer().save_pretrained(folder)
    text = printed(folder, data, out, "--scheme=lora", "--frozen-weights=int4", "--steps=2")
    assert "GPTQ weights: --frozen-weights int4 keeps their exact values\n" in text
    adapted = peft.PeftModel.from_pretrained(module, out / "adapter").merge_and_unload()
    merged = transformers.LlamaForCausalLM.from_pretrained(out / "merged", dtype=torch.float32)
    for name, weight in merged.named_parameters():
        torch.testing.assert_close(weight, adapted.get_parameter(name), rtol=1e-3, atol=1e-4)
    assert not hasattr(merged.config, "quantization_config")


def test_adapters_with_magnitudes_are_written_for_peft_only(
    folder: Path, data: Path, tmp_path: Path
) -> None:
    text = printed(folder, data, tmp_path / "out", "--epochs=1", "--scheme=dora")
    assert (tmp_path / "out" / "adapter" / "adapter_model.safetensors").is_file()
    path = tmp_path / "out" / "adapter.gguf"
    assert not path.exists()
    words = " ".join(text.split())  # lines are wrapped
    assert "adapter.gguf is not written: model.layers.0.self_attn.q_proj.weight has a" in words
    assert "(DoRA)" in words
    assert "give llama.cpp the merged model, or train with the scheme lora" in words
