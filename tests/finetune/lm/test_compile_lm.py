"""`pockengine compile-lm` writes a folder whose runner answers as transformers does."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from click.testing import CliRunner

from pockengine.cli.compile_lm import compile_lm
from pockengine.errors import FinetuneError
from pockengine.finetune.lm.chat import chat_of
from pockengine.tests.finetune.lm.decoders import MARKS, TEMPLATE, llama, save, tokenizer

QUESTIONS = ("What does a cow say?", "And a dog, zuletzt — ein Hund? 🐕")
LIMIT = 12


def speaking() -> Any:
    """Return a decoder that generates letters only: all other tokens' logits are 0."""
    model = llama(max_position_embeddings=256, initializer_range=0.3)
    alphabet = tokenizer().get_vocab()
    with torch.no_grad():
        for word, number in alphabet.items():
            if not (word.isascii() and word.isalpha() and word not in MARKS):
                model.lm_head.weight[number] = 0
    return model


def answers_of(folder: Path) -> list[str]:
    """Return transformers' answers to the questions in one chat."""
    words = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    messages: list[dict[str, str]] = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        text = words.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = words(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            new = model.generate(ids, do_sample=False, max_new_tokens=LIMIT, pad_token_id=0)
        answer = words.decode(new[0, ids.shape[1] :], skip_special_tokens=True)
        messages.append({"role": "assistant", "content": answer})
    return [message["content"] for message in messages[1::2]]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """Return the model's folder, the compiled folder, and the printed command."""
    place = tmp_path_factory.mktemp("device")
    folder = save(place / "model", speaking())
    given = [str(folder), f"--out={place / 'out'}", "--max-length=160", "--json"]
    result = CliRunner().invoke(compile_lm, given, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return folder, place / "out", json.loads(result.stdout)["command"]


def chatted(compiled: tuple[Path, Path, str], lines: str, *more: str) -> Any:
    """Run the compiled command with these input lines."""
    _, out, command = compiled
    return subprocess.run(
        [*command.split(), *more], cwd=out, input=lines.encode(), capture_output=True, check=False
    )


def test_a_chat_is_that_of_transformers(compiled: tuple[Path, Path, str]) -> None:
    done = chatted(compiled, "\n".join(QUESTIONS), f"--limit={LIMIT}")
    assert done.returncode == 0, done.stderr.decode()
    answers = done.stdout.decode().splitlines()
    assert answers == answers_of(compiled[0])
    assert len(set("".join(answers))) > 4
    told = [json.loads(line) for line in done.stderr.decode().splitlines()]
    assert [row["tokens"] for row in told] == [LIMIT, LIMIT]
    drawn = chatted(compiled, "a\n", "--temperature=1", "--top-p=0.9", "--seed=3", "--threads=2")
    again = chatted(compiled, "a\n", "--temperature=1", "--top-p=0.9", "--seed=3")
    other = chatted(compiled, "a\n", "--temperature=1", "--top-p=0.9", "--seed=4")
    assert drawn.stdout == again.stdout != other.stdout


def test_faults_of_a_chat_are_named(compiled: tuple[Path, Path, str]) -> None:
    _, out, _ = compiled
    (out / "damaged.bin").write_bytes((out / "tokenizer.bin").read_bytes()[:-4] + b"\0\1\2\3")
    for lines, more, fault in (
        ("a" * 300, (), "the prompt has"),
        ("a" * 60000, (), "the chat has more than"),
        ("a", ("--tokenizer=none.bin",), "cannot map the tokenizer's table none.bin"),
        ("a", ("--tokenizer=damaged.bin",), "is damaged: its checksum differs"),
        ("a", ("--temperature=1", "--top-p=2"), "at most 1, not 2"),
    ):
        done = chatted(compiled, lines, *more)
        assert done.returncode != 0
        assert fault in done.stderr.decode()


def test_templates_become_pieces(tmp_path: Path) -> None:
    chat = chat_of(tokenizer(), tmp_path)
    assert (chat.ask, chat.answer) == ("<s>user\n", "</s><s>assistant\n")
    assert (chat.ask_again, list(chat.stops)) == ("</s><s>user\n", [2])
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    assert list(chat_of(tokenizer(None), tmp_path).stops) == [2, 7]
    assert chat_of(tokenizer(None), tmp_path).answer == ""
    counting = TEMPLATE.replace("{{ m['role'] }}", "{{ messages | length }}")
    with pytest.raises(FinetuneError, match="a device needs one of literal pieces"):
        chat_of(tokenizer(counting), tmp_path)
