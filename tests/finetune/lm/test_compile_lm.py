"""`pockengine compile-lm` writes a folder whose runner gives the same answers as transformers."""

import json
import random
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from tokenizers import Tokenizer

from pockengine.cli.compile_lm import compile_lm
from pockengine.cli.finetune_lm import finetune_lm
from pockengine.errors import FinetuneError
from pockengine.finetune.lm.chat import chat_of
from pockengine.models.tokenizer_table import ChatForm, tokenizer_table
from pockengine.tests.finetune.lm.decoders import (
    LETTERS,
    LIMIT,
    QUESTIONS,
    SPACED,
    TEMPLATE,
    WORDS,
    answers_of,
    llama,
    save,
    spaced_letters,
    speaking,
    tokenizer,
    unigram_words,
)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """Return the model's folder, the compiled folder, and the printed command."""
    place = tmp_path_factory.mktemp("device")
    folder = save(place / "model", speaking())
    arguments = [str(folder), f"--out={place / 'out'}", "--max-length=160", "--json"]
    result = CliRunner().invoke(compile_lm, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return folder, place / "out", json.loads(result.stdout)["command"]


def chatted(compiled: tuple[Path, Path, str], lines: str, *more: str) -> Any:
    """Run the compiled command with these input lines."""
    _, out, command = compiled
    return subprocess.run(
        [*command.split(), *more], cwd=out, input=lines.encode(), capture_output=True, check=False
    )


def answered(compiled: tuple[Path, Path, str], lines: str, *more: str) -> bytes:
    """Return the answers to these lines, with few tokens."""
    done = chatted(compiled, lines, "--limit=8", *more)
    assert done.returncode == 0, done.stderr.decode()
    answers: bytes = done.stdout
    return answers


def test_chat_matches_transformers(compiled: tuple[Path, Path, str]) -> None:
    done = chatted(compiled, "\n".join(QUESTIONS), f"--limit={LIMIT}")
    assert done.returncode == 0, done.stderr.decode()
    answers = done.stdout.decode().splitlines()
    assert answers == answers_of(compiled[0])
    assert len(set("".join(answers))) > 4
    records = [json.loads(line) for line in done.stderr.decode().splitlines()]
    assert [row["tokens"] for row in records] == [LIMIT, LIMIT]
    drawn = chatted(compiled, "a\n", "--temperature=1", "--top-p=0.9", "--seed=3", "--threads=2")
    again = chatted(compiled, "a\n", "--temperature=1", "--top-p=0.9", "--seed=3")
    other = chatted(compiled, "a\n", "--temperature=1", "--top-p=0.9", "--seed=4")
    assert drawn.stdout == again.stdout != other.stdout


def test_stop_texts_end_an_answer(compiled: tuple[Path, Path, str]) -> None:
    """The first one is held back while it may come, then printed; the later one comes first."""
    (first, _), lines = answers_of(compiled[0]), "\n".join(QUESTIONS)
    stops = (f"{first[1:4]}#", first[5:8], first[4:6])
    done = chatted(compiled, lines, f"--limit={LIMIT}", *(f"--stop={stop}" for stop in stops))
    assert done.stdout.decode().splitlines() == answers_of(compiled[0], stop=stops[2])
    assert json.loads(done.stderr.decode().splitlines()[0])["tokens"] == 6
    held = chatted(compiled, lines, f"--limit={LIMIT}", f"--stop={first[-2:]}#")
    assert held.stdout.decode().splitlines() == answers_of(compiled[0])
    none = chatted(compiled, lines, "--stop=")
    assert b"--stop takes TEXT, at most 16 that are not empty" in none.stderr


def chatted_with(compiled: tuple[Path, Path, str], folder: Path, content: str, word: str) -> Any:
    """Chat where a letter of the first answer is another word, and the template writes `content`.

    Return the answers, those of transformers, and the chat's pieces.
    """
    folder = shutil.copytree(compiled[0], folder)
    letter = answers_of(folder)[0][3]
    words = tokenizer(TEMPLATE.replace("m['content']", content))
    changed = words.backend_tokenizer.to_str().replace(f'"{letter}":', f'"{word}":')
    words = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(changed),
        eos_token="</s>",
        chat_template=words.chat_template,
    )
    return chatted_by(compiled, folder, words, 4)


def chatted_by(compiled: tuple[Path, Path, str], folder: Path, words: Any, limit: int) -> Any:
    """Chat with another tokenizer, which is saved in a copy of the model's folder."""
    words.save_pretrained(folder)
    chat = chat_of(words, folder)
    (compiled[1] / "changed.bin").write_bytes(tokenizer_table(words.backend_tokenizer, chat))
    changed = (f"--limit={limit}", "--tokenizer=changed.bin")
    done = chatted(compiled, "\n".join(QUESTIONS), *changed)
    return done.stdout.decode(), "".join(f"{a}\n" for a in answers_of(folder, limit)), chat


def test_chat_with_unigram_matches_transformers(
    compiled: tuple[Path, Path, str], tmp_path: Path
) -> None:
    folder = shutil.copytree(compiled[0], tmp_path / "model")
    ours, theirs, _ = chatted_by(compiled, folder, unigram_words(), LIMIT)
    assert ours == theirs
    assert " " in ours.strip()
    assert len(set(ours)) > 6


def test_an_earlier_answer_loses_its_thoughts(
    compiled: tuple[Path, Path, str], tmp_path: Path
) -> None:
    """A letter of the first answer becomes the end of a thought, and a line break."""
    forgetful = "m['content'].split('</think>')[-1].lstrip('\n')"
    ours, theirs, chat = chatted_with(compiled, tmp_path / "model", forgetful, "</think>Ċ")
    assert "</think>" in ours
    assert ours == theirs
    assert ChatForm.FORGETS | ChatForm.FORGETS_LINES in chat.form
    kept = tokenizer(TEMPLATE.replace("m['content']", "m['content'].split('</think>')[-1]"))
    assert ChatForm.FORGETS in chat_of(kept, compiled[0]).form
    assert ChatForm.FORGETS_LINES not in chat_of(kept, compiled[0]).form
    assert ChatForm.FORGETS not in chat_of(tokenizer(), compiled[0]).form


def test_an_earlier_answer_loses_the_spaces_that_a_template_strips(
    compiled: tuple[Path, Path, str], tmp_path: Path
) -> None:
    """The last letter of the first answer becomes a space and a line break."""
    ours, theirs, chat = chatted_with(compiled, tmp_path / "model", "m['content'] | trim", "ĠĊ")
    assert theirs.index(" \n\n") == 3
    assert ours == theirs
    assert ChatForm.STRIPS_ANSWER in chat.form


@pytest.mark.parametrize(
    "template", [SPACED, SPACED.replace("' ' + ", ""), SPACED.replace("'] +", "'] | trim +")]
)
def test_an_earlier_answer_follows_what_its_template_writes_before_it(
    tmp_path: Path, template: str
) -> None:
    """Every token is a letter after a space; the first space is not part of an answer."""
    words = spaced_letters(template)
    model = llama(vocab_size=len(words), max_position_embeddings=256, initializer_range=0.3)
    with torch.no_grad():
        model.lm_head.weight[: -len(LETTERS)] = 0
    folder, out = save(tmp_path / "model", model), tmp_path / "out"
    words.save_pretrained(folder)
    arguments = [str(folder), f"--out={out}", "--max-length=160", "--json"]
    result = CliRunner().invoke(compile_lm, arguments, catch_exceptions=False)
    command = json.loads(result.stdout)["command"]
    done = chatted((folder, out, command), "\n".join(QUESTIONS), f"--limit={LIMIT}")
    assert done.stdout.decode().splitlines() == answers_of(folder)
    assert len(done.stdout) == 2 * 2 * LIMIT


def test_template_may_strip_questions(compiled: tuple[Path, Path, str]) -> None:
    words = tokenizer(TEMPLATE.replace("m['content']", "m['content'] | trim"))
    table = tokenizer_table(words.backend_tokenizer, chat_of(words, compiled[0]))
    (compiled[1] / "strips.bin").write_bytes(table)
    strips = "--tokenizer=strips.bin"
    assert answered(compiled, " a\t\n", strips) == answered(compiled, "a\n", strips)
    assert answered(compiled, " a\t\n") != answered(compiled, "a\n")
    assert answered(compiled, "a\rb\r\n") == answered(compiled, "a\rb\n")
    assert answered(compiled, "a\rb\n") != answered(compiled, "a\n")


def test_each_of_many_end_tokens_ends_an_answer(compiled: tuple[Path, Path, str]) -> None:
    words = tokenizer()
    chat = replace(chat_of(words, compiled[0]), stops=sorted(words.get_vocab().values()))
    (compiled[1] / "ends.bin").write_bytes(tokenizer_table(words.backend_tokenizer, chat))
    assert answered(compiled, "a\nb\n", "--tokenizer=ends.bin") == b"\n\n"


def test_an_empty_line_has_an_empty_completion(compiled: tuple[Path, Path, str]) -> None:
    table = tokenizer_table(tokenizer(None).backend_tokenizer)
    (compiled[1] / "plain.bin").write_bytes(table)
    plain = "--tokenizer=plain.bin"
    (answer,) = answered(compiled, "a\n", plain).splitlines()
    assert answer
    assert answered(compiled, "a\n\na\n", plain) == answer + b"\n\n" + answer + b"\n"


def test_chat_on_an_emulated_board(compiled: tuple[Path, Path, str], tmp_path: Path) -> None:
    if shutil.which("qemu-aarch64") is None:
        pytest.skip("qemu-aarch64 is not installed: apt install qemu-user")
    arguments = [str(compiled[0]), f"--out={tmp_path}", "--max-length=160", "--device=rpi4"]
    result = CliRunner(env={"COLUMNS": "40"}).invoke(compile_lm, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    command = "qemu-aarch64 " + result.stdout.splitlines()[-1]
    done = chatted((compiled[0], tmp_path, command), "\n".join(QUESTIONS), f"--limit={LIMIT}")
    assert done.stdout.decode().splitlines() == answers_of(compiled[0])


def test_errors_name_the_fault_of_a_chat(compiled: tuple[Path, Path, str]) -> None:
    _, out, _ = compiled
    (out / "damaged.bin").write_bytes((out / "tokenizer.bin").read_bytes()[:-4] + b"\0\1\2\3")
    for lines, more, fault in (
        ("a" * 300, (), "the prompt has"),
        ("a" * 70000, (), "the chat has more than"),
        ("a", ("--tokenizer=none.bin",), "cannot map the tokenizer's table none.bin"),
        ("a", ("--tokenizer=damaged.bin",), "is damaged: its checksum differs"),
        (
            "a",
            ("--temperature=1", "--top-p=2"),
            'SHARE above 0, of at most 1, not "2"',
        ),
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
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [-1, 7, 4294967295, 1e30]}')
    assert list(chat_of(tokenizer(None), tmp_path).stops) == [2, 7]
    for ends in ("Infinity", "[" * 100_000):
        (tmp_path / "generation_config.json").write_text(f'{{"eos_token_id": {ends}}}')
        with pytest.raises(FinetuneError, match=r"generation_config\.json cannot be read"):
            chat_of(tokenizer(None), tmp_path)
    (tmp_path / "generation_config.json").unlink()
    counting = TEMPLATE.replace("{{ m['role'] }}", "{{ messages | length }}")
    with pytest.raises(FinetuneError, match="a device needs one of literal pieces"):
        chat_of(tokenizer(counting), tmp_path)


def lines_of(count: int = 24) -> list[dict[str, Any]]:
    """Return examples of every form, some without anything to learn and some too long."""
    drawn = random.Random(0)

    def text() -> str:
        words = ("cow", "Hund", "🐕‍🦺", "mu\u0308ller", "\t", '"\\/', "\u2028", "</s>", " x ")
        return " ".join(drawn.choice(words) for _ in range(drawn.randrange(1, 7)))

    def chat(*roles: str) -> dict[str, Any]:
        messages = [{"role": role, "content": text()} for role in roles]
        return {"id": [1.5e-3, {"a": None}], "messages": messages}

    forms = (
        lambda: {"prompt": text(), "completion": text()},
        lambda: {"text": text(), "more": [True, -0.5, "]"]},
        lambda: chat("user", "assistant"),
        lambda: chat("system", "user", "assistant", "user", "assistant"),
        lambda: chat("user", "assistant", "user"),
        lambda: {"prompt": text(), "completion": " \n"},
        lambda: {"text": text() * 20},
    )
    return [form() for _ in range(count // len(forms) + 1) for form in forms]


def trained_by_python(folder: Path, data: Path, out: Path, *options: str) -> list[float]:
    """Return the losses of `pockengine finetune-lm`."""
    arguments = [
        str(folder),
        f"--data={data}",
        f"--out={out}",
        "--max-length=160",
        "--json",
        *options,
    ]
    arguments += ["--hold-out=0", "--answer-tokens=0", "--no-merge", "--lr=0.01", "--seed=3"]
    result = CliRunner().invoke(finetune_lm, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    log = (out / "checkpoints" / "history.jsonl").read_text().splitlines()
    return [row["step"]["loss"] for row in map(json.loads, log) if "step" in row]


def finetuned(compiled: tuple[Path, Path, str], data: Path, *more: str) -> Any:
    """Run the runner's finetune, with the chat's weights and tokenizer."""
    _, out, command = compiled
    runner, _, *files = command.split()
    arguments = [runner, "finetune", *files, f"--data={data}", "--seed=3"]
    arguments += [] if "--resume" in more else ["--lr=0.01"]
    return subprocess.run([*arguments, *more], cwd=out, capture_output=True, check=False)


def losses(done: Any) -> list[float]:
    assert done.returncode == 0, done.stderr.decode()
    rows = map(json.loads, done.stdout.decode().splitlines())
    return [row["loss"] for row in rows if "step" in row and "loss" in row]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write JSON lines with a byte order mark and a blank line, escaped every other line."""
    text = "\n".join(json.dumps(row, ensure_ascii=n % 2 == 0) for n, row in enumerate(rows))
    path.write_text("\ufeff" + text.replace("\n", "\n \r\n", 1), encoding="utf-8")
    return path


@pytest.mark.parametrize("option", ["", "--truncate --no-pack"])
def test_training_matches_python(
    compiled: tuple[Path, Path, str], tmp_path: Path, option: str
) -> None:
    data, options = written(tmp_path / "data.jsonl", lines_of()), shlex.split(option)
    expected = trained_by_python(compiled[0], data, tmp_path / "out", *options)
    done = finetuned(compiled, data, *options)
    assert len(expected) > 5
    np.testing.assert_array_equal(np.float32(losses(done)), np.float32(expected))
    assert "hold nothing to learn, and are left out: line 7, 9, 14" in done.stderr.decode()


def test_texts_that_a_model_would_mix_have_rows_of_their_own(tmp_path: Path) -> None:
    shape = {"hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    sizes = {"word_embed_proj_dim": 32, "vocab_size": WORDS, "max_position_embeddings": 256}
    torch.manual_seed(0)
    model = transformers.OPTForCausalLM(transformers.OPTConfig(dropout=0.0, **shape, **sizes))
    folder, out = save(tmp_path / "model", model, template=None), tmp_path / "device"
    arguments = [str(folder), f"--out={out}", "--max-length=160", "--json"]
    result = CliRunner().invoke(compile_lm, arguments, catch_exceptions=False)
    compiled = folder, out, json.loads(result.stdout)["command"]
    data = written(tmp_path / "data.jsonl", lines_of())
    expected = trained_by_python(folder, data, tmp_path / "out")
    found = losses(finetuned(compiled, data))
    assert len(found) > 15
    np.testing.assert_array_equal(np.float32(found), np.float32(expected))


def test_evaluation_is_the_mean_over_tokens(
    compiled: tuple[Path, Path, str], tmp_path: Path
) -> None:
    data = written(tmp_path / "data.jsonl", lines_of())
    folder, out, command = compiled
    arguments = [str(folder), f"--data={data}", f"--validation={data}", "--max-length=160"]
    rest = [f"--out={tmp_path / 'out'}", "--steps=1", "--answer-tokens=0", "--no-merge", "--json"]
    expected = CliRunner().invoke(finetune_lm, [*arguments, *rest], catch_exceptions=False)
    runner, _, *files = command.split()
    done = subprocess.run(
        [runner, "evaluate", *files, f"--data={data}"], cwd=out, capture_output=True, check=True
    )
    found = next(row for row in map(json.loads, done.stdout.splitlines()) if "evaluated" in row)
    assert found["rows"] == found["of"] > 2
    loss = json.loads(expected.stdout)["before"]["loss"]
    assert found["loss"] == pytest.approx(loss, rel=1e-6)


def test_an_output_that_cannot_be_written_is_named_before_the_first_step(
    compiled: tuple[Path, Path, str], tmp_path: Path
) -> None:
    data = written(tmp_path / "data.jsonl", lines_of())
    for path, fact in (("/nonexistent/x", "No such file"), (str(tmp_path), "no regular file")):
        done = finetuned(compiled, data, f"--output={path}")
        assert (done.returncode, done.stdout) == (1, b"")
        assert f"cannot write {path}: " in done.stderr.decode()
        assert fact in done.stderr.decode()


def test_training_resumes_and_its_adapter_is_swapped(
    compiled: tuple[Path, Path, str], tmp_path: Path
) -> None:
    data = written(tmp_path / "data.jsonl", lines_of())
    adapter, again, damaged = (tmp_path / name for name in ("adapter", "again", "damaged"))
    whole = losses(finetuned(compiled, data, f"--output={adapter}", "--epochs=3", "--lr=0.1"))
    save = f"--save={tmp_path / 'checkpoint'}"
    begin = ("--resume", "--steps=4", "--lr=0.1", f"--total={len(whole)}")  # no checkpoint yet
    first = losses(finetuned(compiled, data, save, *begin))
    remaining = finetuned(compiled, data, save, "--resume", "--epochs=3", f"--output={again}")
    assert first + losses(remaining) == whole
    assert adapter.read_bytes() == again.read_bytes()
    damaged.write_bytes(adapter.read_bytes()[:-4])
    plain = answered(compiled, "a\n")
    tuned = answered(compiled, "a\n", f"--adapter={adapter}")
    assert plain != tuned
    done = chatted(compiled, f"/adapter {damaged}\na\n", "--limit=8")
    assert (done.stdout, b"error: " in done.stderr) == (plain, True)
    swapped = answered(compiled, f"a\n/adapter {adapter}\nb\n").splitlines()[1]
    assert swapped != answered(compiled, "a\nb\n").splitlines()[1]
    assert answered(compiled, f"/adapter {adapter}\na\n") == tuned
