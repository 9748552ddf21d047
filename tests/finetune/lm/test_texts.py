"""Tokenized texts: learned and masked parts of a chat, and packing into rows."""

import json
import resource
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import processors

from pockengine.errors import FinetuneError
from pockengine.finetune.lm import template_process
from pockengine.finetune.lm.packing import pack
from pockengine.finetune.lm.pairs import tokenize_pairs
from pockengine.finetune.lm.templates import render
from pockengine.finetune.lm.texts import Example, Pair, read_examples
from pockengine.finetune.lm.tokens import (
    Tokens,
    open_tokenizer,
    pieces,
    question_ids,
    tokenize,
)
from pockengine.finetune.task import IGNORED
from pockengine.tests.finetune.lm.decoders import TEMPLATE, WORDS, save, tokenizer

CHAT = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "three"},
    {"role": "assistant", "content": "four"},
]

THOUGHTS = TEMPLATE.replace(
    "{{ m['content'] }}",
    "{{ '<think></think>' if loop.last and m['role'] == 'assistant' }}{{ m['content'] }}",
)
"""Like Qwen3's, it writes thoughts in the last answer alone."""


def learned(example: Example, template: str | None = TEMPLATE) -> str:
    """Return the text of the tokens that count in the loss."""
    words = tokenizer(template)
    (tokens,) = tokenize(words, [example], 200).examples
    return str(words.decode([label for label in tokens.labels if label != IGNORED]))


def test_answers_of_a_chat_are_learned_with_their_end_tokens() -> None:
    assert learned(Example(1, CHAT)) == "two</s>four</s>"


def test_chat_without_a_template_is_plain_turns() -> None:
    assert learned(Example(1, CHAT), None) == "two\n\nfour\n\n</s>"


def test_completions_are_learned_and_prompts_are_not() -> None:
    assert learned(Example(1, prompt="ask", completion=" said")) == " said</s>"


def test_plain_texts_are_learned_whole() -> None:
    assert learned(Example(1, completion="all of it")) == "all of it</s>"


@pytest.mark.parametrize("trim", [False, True])
def test_end_tokens_and_spaces_are_learned(trim: bool) -> None:
    """Also an end token that the tokenizer adds, and spaces whose offsets it trims."""
    words = tokenizer(None)
    ends = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    words.backend_tokenizer.post_processor = (
        processors.ByteLevel(add_prefix_space=False, trim_offsets=True) if trim else ends
    )
    example = Example(1, prompt="a b", completion=" c\n  d")
    (tokens,) = tokenize(words, [example], 64).examples
    learned = [label for label in tokens.labels if label != IGNORED]
    assert words.decode(learned) == " c\n  d</s>"


def test_question_is_everything_before_the_last_answer() -> None:
    words = tokenizer()
    ids = question_ids(words, Example(1, CHAT).question)
    assert Example(1, CHAT[:3]).question.messages == CHAT[:3]
    assert words.decode(ids).endswith("<s>user\nthree</s><s>assistant\n")


def test_empty_and_long_examples_are_counted_and_reported() -> None:
    examples = [Example(n, completion=text) for n, text in ((1, " "), (4, "x" * 30), (5, "ok"))]
    found = tokenize(tokenizer(), examples, 20)
    assert [tokens.line for tokens in found.examples] == [5]
    assert found.remarks(Path("a.jsonl"), 20) == [
        "a.jsonl: 1 examples hold nothing to learn, and are left out: line 1",
        "a.jsonl: 1 examples are longer than 20 tokens, and are left out; --truncate cuts them: "
        "line 4",
    ]


def test_long_examples_are_truncated_on_request() -> None:
    long = [Example(1, completion="x" * 30), Example(2, prompt="x" * 30, completion="y")]
    found = tokenize(tokenizer(), long, 20, truncate=True)
    assert [len(tokens.ids) for tokens in found.examples] == [20]
    assert (found.cut, found.empty) == ([1, 2], [2])


def test_plain_text_is_cut_into_pieces() -> None:
    found = pieces(tokenizer(), "abcdefghi", 4)
    assert [len(tokens.ids) for tokens in found.examples] == [4, 4]


def test_packed_rows_mark_where_texts_begin() -> None:
    texts = [Tokens(n, [n] * size, [n] * size) for n, size in ((1, 3), (2, 4), (3, 2))]
    packed = pack(texts, 6)
    assert packed.arrays["input_ids"].tolist() == [[1, 1, 1, 3, 3, 0], [2, 2, 2, 2, 0, 0]]
    assert packed.arrays["position_ids"].tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 0, 0]]
    ignored = packed.arrays["labels"] == IGNORED
    assert np.flatnonzero(ignored[0]).tolist() == [0, 3, 5]
    assert packed.counted.tolist() == [3, 3]
    assert pack(texts, 6, together=False).rows == 3


@pytest.mark.parametrize(
    "line",
    [
        '{"prompt": "a"}',
        "[1]",
        '{"text": 3}',
        '{"text": "\\ud800"}',
        "{",
        '{"messages": [{"role": "user"}]}',
        '{"prompt": "a", "text": "b"}',
        '{"text": "a", "tools": [{"name": "f"}]}',
        '{"messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": "f"}]}]}',
    ],
)
def test_error_names_a_line_that_is_not_an_example(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\n' + line)
    with pytest.raises(
        FinetuneError, match=r"a\.jsonl, line 2 is not an example: .*a JSON object with"
    ):
        read_examples(path)


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt"])
def test_error_names_an_empty_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("\n \n")
    with pytest.raises(FinetuneError, match=rf"{name} is empty; give JSON lines with"):
        read_examples(tmp_path / name)


@pytest.mark.parametrize("name", ["a.JSONL", "a.ndjson"])
def test_lines_are_read_by_any_name_of_their_format(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"text": "one"}\n{"text": "two"}\n')
    assert [each.completion for each in read_examples(tmp_path / name)] == ["one", "two"]


def test_lines_end_only_at_line_feeds_and_a_byte_order_mark_is_skipped(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes('\ufeff{"text":\r"one\u2028two"}\r\n{"text": "three"}'.encode())
    examples = [(example.line, example.completion) for example in read_examples(path)]
    assert examples == [(1, "one\u2028two"), (2, "three")]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"messages": {"role": "user"}}', "messages is an object, not a list of messages"),
        ('{"messages": [null]}', "a message is null, not an object"),
        ('{"text": "one"}\r{"text": "two"}', "Extra data"),
    ],
)
def test_error_names_a_malformed_line(tmp_path: Path, line: str, fault: str) -> None:
    (tmp_path / "a.jsonl").write_text(f"\n{line}", newline="")
    with pytest.raises(FinetuneError, match=rf"line 2 is not an example: .*{fault}"):
        read_examples(tmp_path / "a.jsonl")


def test_error_names_a_file_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("né".encode("latin-1"))
    with pytest.raises(FinetuneError, match=r"a\.txt cannot be read as text in UTF-8.*save it so"):
        read_examples(tmp_path / "a.txt")


def test_error_names_a_chat_that_the_template_refuses() -> None:
    refusing = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(FinetuneError, match=r"line 7: .*refuses it: roles must alternate"):
        tokenize(tokenizer(refusing), [Example(7, CHAT)], 100)


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(10**9) %}x{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 10**11 }}",
        "{% set n = 10 %}{{ n ** (n ** 9) }}",
    ],
    ids=range(4),
)
def test_templates_are_bounded_in_time_and_memory(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_process, "SECONDS", 1)
    chat = Example(7, [{"role": "user", "content": "hello"}])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FinetuneError, match="the tokenizer's chat template"):
        render(tokenizer(template), chat)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_answers_that_the_template_changes_once_turns_follow_are_not_learned() -> None:
    assert learned(Example(1, CHAT), THOUGHTS) == "<think></think>four</s>"
    found = tokenize(tokenizer(THOUGHTS), [Example(1, CHAT)], 200)
    (remark,) = found.remarks(Path("a.jsonl"), 200)
    assert remark == (
        "a.jsonl: 1 examples have answers that the template changes once later turns follow; "
        "these are not learned: give lines that end with them: line 1"
    )
    assert not tokenize(tokenizer(THOUGHTS), [Example(1, CHAT[:2])], 200).rewritten


def test_templates_whose_prompt_for_an_answer_differs_are_refused() -> None:
    thoughts = TEMPLATE.replace("<s>assistant\n", "<s>assistant\n<think>")
    with pytest.raises(
        FinetuneError, match=r"line 1: .* prompts for an answer by text that it does not"
    ):
        tokenize(tokenizer(thoughts), [Example(1, CHAT[:2])], 200)


def test_pairs_of_answers_that_the_template_rewrites_are_left_out() -> None:
    answers = (Example(1, [*CHAT[:3], {"role": "assistant", "content": text}]) for text in "ab")
    with pytest.raises(FinetuneError, match="1 pairs have answers that the template changes"):
        tokenize_pairs(tokenizer(THOUGHTS), [Pair(*answers)], Path("a.jsonl"), 100)


def test_tokenizers_of_other_models_are_refused(tmp_path: Path) -> None:
    folder = save(tmp_path)
    open_tokenizer(folder, WORDS)
    with pytest.raises(FinetuneError, match="tokens up to 258, and the model knows 100"):
        open_tokenizer(folder, 100)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(FinetuneError, match="cannot be read"):
        open_tokenizer(folder, WORDS)
    facts = json.loads(tokenizer().backend_tokenizer.to_str())
    mark = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    marked = {"type": "TemplateProcessing", "single": [mark], "pair": [mark], "special_tokens": {}}
    facts["model"] |= {"continuing_subword_prefix": "never", "merges": [["a", "b"]]}
    for change in ({}, {"post_processor": marked}):
        (folder / "tokenizer.json").write_text(json.dumps(facts | change))
        with pytest.raises(FinetuneError, match="cannot be read: tokenizers fails"):
            open_tokenizer(folder, WORDS)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FinetuneError, match="has no tokenizer"):
        open_tokenizer(folder, WORDS)


def test_folders_are_read_with_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(FinetuneError, match="pip install datasets"):
        read_examples(tmp_path)
    rows = [{"text": "a", "prompt": None}, {"prompt": "b", "completion": "c", "text": None}]
    stored: list[Any] = [rows]
    package = SimpleNamespace(load_from_disk=lambda path: stored[-1])
    monkeypatch.setitem(sys.modules, "datasets", package)
    assert read_examples(tmp_path) == [
        Example(1, completion="a"),
        Example(2, prompt="b", completion="c"),
    ]
    for found, fact in (
        ({"train": [], "test": []}, "splits train, test; give .*train"),
        ([], "has no rows"),
        ([{"words": "a"}], "line 1 is not an example: it has no "),
        ([{"messages": {"role": "user"}}], "messages is an object, not a list"),
    ):
        stored.append(found)
        with pytest.raises(FinetuneError, match=fact):
            read_examples(tmp_path)
    package.load_from_disk = lambda path: 1 / 0
    with pytest.raises(FinetuneError, match="no data set that save_to_disk wrote"):
        read_examples(tmp_path)


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ('{"text": nul}', "it is not JSON: Expecting value, column 10;"),
        ("[1, 2]", "it is a list;"),
        ('{"text": null}', "text is null, not a text;"),
        ('{"prompt": "a", "completion": 5}', "completion is 5, not a text;"),
        ('{"messages": 3}', "messages is 3, not a list of messages;"),
        ('{"messages": ["a"]}', "a message is a text, not an object;"),
        ('{"text": "\\ud800"}', "text has half of a surrogate pair;"),
        ("[" * 100_000, "it is nested too deeply;"),
    ],
)
def test_faults_of_a_line_are_in_words(line: str, fact: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line)
    with pytest.raises(FinetuneError, match=f"a.jsonl, line 1 is not an example: {fact}"):
        read_examples(tmp_path / "a.jsonl")
