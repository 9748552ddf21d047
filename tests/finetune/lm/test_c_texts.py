"""The C runtime packs texts into the same rows as Python."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from pockengine.finetune.lm.chat import chat_of
from pockengine.finetune.lm.packing import pack
from pockengine.finetune.lm.texts import read_examples
from pockengine.finetune.lm.tokens import tokenize
from pockengine.models.tokenizer_table import Chat, ChatForm, tokenizer_table
from pockengine.tests.finetune.lm.decoders import SPACED, TEMPLATE
from pockengine.tests.models.tokenizer_kinds import KINDS, mixture, of_single_bytes
from pockengine.tests.models.tokenizer_program import build_sanitized, sources_of
from pockengine.tests.models.unigram_kinds import UNIGRAM_KINDS

LENGTH = 96
TRIMMING = (
    "{{ '<s>' }}{% for m in messages %}{{ '[' + m['role'] + ']: ' + m['content'] | trim }}"
    "{% if m['role'] == 'assistant' %}{{ '</s>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant]: ' }}{% endif %}"
)
MERGED = (
    "{{ '<s>' }}{% set first = messages[0]['role'] == 'system' %}"
    "{% for m in messages[first | int:] %}{{ '[' + m['role'] + ']' }}"
    "{{ ((messages[0]['content'] + ': ' if first and loop.first else '') + m['content']) | trim }}"
    "{{ '</s>' }}{% endfor %}{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}"
)
"""Writes a system message into the first question, like Gemma's, and strips both together."""
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "pe_texts.h"
int main(int count, char **arguments) {
    static unsigned char table[1 << 24];
    char message[PE_MESSAGE_BYTES];
    FILE *file = count > 3 ? fopen(arguments[1], "rb") : NULL;
    const size_t bytes = file ? fread(table, 1, sizeof table, file) : 0;
    pe_tokenizer tokenizer;
    pe_texts texts = {0};
    if (pe_tokenizer_init(&tokenizer, table, bytes, message) != PE_OK) {
        return fprintf(stderr, "%s", message), 1;
    }
    fclose(file);
    const pe_row_form form = {&tokenizer, atoi(arguments[3]), false, false};
    const pe_status status = pe_texts_read(&texts, arguments[2], &form, message);
    const size_t tokens = (size_t)(texts.rows * texts.length);
    if (status == PE_OK) {
        fwrite(texts.ids, 8, tokens, stdout);
        fwrite(texts.labels, 8, tokens, stdout);
        fwrite(texts.positions, 8, tokens, stdout);
    } else {
        fprintf(stderr, "%s", message);
    }
    pe_texts_free(&texts);
    return status != PE_OK;
}
"""
SOURCES = ("core/*.c", "text/pe_tokenizer*.c", "text/pe_texts.c", "text/pe_example.c")
MORE = ("text/pe_json.c", "train/pe_crc.c")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    source, path = folder / "main.c", folder / "pack"
    source.write_text(PROGRAM)
    build_sanitized([*sources_of((*SOURCES, *MORE)), source], path)
    return path


def packed(program: Path, table: Path, data: Path, length: int = LENGTH) -> Any:
    """Run the C program."""
    arguments = [str(program), str(table), str(data), str(length)]
    return subprocess.run(arguments, capture_output=True, check=False, timeout=120)


def examples() -> list[dict[str, Any]]:
    """Return examples of every form, with mixed scripts and random characters."""
    texts = [text for text in mixture() if len(text) < 200][-900:]
    lines: list[dict[str, Any]] = []
    for place in range(0, len(texts) - 4, 5):
        a, b, c, d, e = texts[place : place + 5]
        chat = [("user", b), ("assistant", c)] + [("user", d), ("assistant", e)] * (place % 2)
        lines.append({"prompt": a, "completion": b} if place % 3 else {"text": a, "tools": []})
        messages = [{"role": role, "content": text, "thinking": ""} for role, text in chat]
        lines.append({"messages": messages})
    return lines


CASES: dict[str, tuple[str, str | None]] = {
    **{kind: (kind, TEMPLATE) for kind in UNIGRAM_KINDS},
    **{kind: (kind, TEMPLATE) for kind in KINDS},
    "trimming": ("llama3", TRIMMING),
    "none": ("qwen", None),
    "marks": ("llama2", TRIMMING),
    "spaced": ("llama2", SPACED),
    "merged": ("gemma", MERGED),
}


@cache
def opened(kind: str, template: str | None) -> Any:
    words = transformers.PreTrainedTokenizerFast(
        tokenizer_object=(KINDS | UNIGRAM_KINDS)[kind](), bos_token="<s>", eos_token="</s>"
    )
    words.chat_template = template
    return words


@pytest.mark.parametrize("case", CASES)
def test_rows_match_python(case: str, program: Path, tmp_path: Path) -> None:
    words = opened(*CASES[case])
    data, table = tmp_path / "data.jsonl", tmp_path / "table"
    lines = (json.dumps(row, separators=(",\r", ":\t")) for row in examples())
    data.write_text("\r\n".join(lines), newline="")
    table.write_bytes(tokenizer_table(words.backend_tokenizer, chat_of(words, tmp_path)))
    expected = pack(tokenize(words, read_examples(data), LENGTH).examples, LENGTH).arrays
    done = packed(program, table, data)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[:2000]
    found = np.frombuffer(done.stdout, np.int64).reshape(3, -1, LENGTH)
    for array, name in zip(found, ("input_ids", "labels", "position_ids"), strict=True):
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_a_system_message_may_not_change_how_a_question_is_stripped(
    program: Path, tmp_path: Path
) -> None:
    words = opened("gemma", MERGED)
    chat = chat_of(words, tmp_path)
    assert chat.form == ChatForm.LEARNS | ChatForm.TURNS | ChatForm.STRIPS_USER | (
        ChatForm.STRIPS_ANSWER
    )
    data, table = tmp_path / "data.jsonl", tmp_path / "table"
    table.write_bytes(tokenizer_table(words.backend_tokenizer, chat))
    turn = [("system", "a"), ("user", " b"), ("assistant", "c")]
    messages = [{"role": role, "content": content} for role, content in turn]
    data.write_text(json.dumps({"messages": messages}))
    assert b"a system at most first" in packed(program, table, data).stderr


def test_rows_hold_the_most_tokens_that_a_text_has(program: Path, tmp_path: Path) -> None:
    tokenizer = of_single_bytes()
    data, table = tmp_path / "data.jsonl", tmp_path / "table"
    text = "x" + " |" * 20
    data.write_text(json.dumps({"text": text}))
    table.write_bytes(tokenizer_table(tokenizer, Chat()))
    ids = tokenizer.encode(text).ids
    assert len(ids) > 3 * len(text) + 16
    done = packed(program, table, data, len(ids))
    assert done.returncode == 0, done.stderr.decode(errors="replace")[:2000]
    assert np.frombuffer(done.stdout, np.int64)[: len(ids)].tolist() == ids


def test_answers_with_thoughts_are_refused_where_templates_split_them(
    program: Path, tmp_path: Path
) -> None:
    data, table = tmp_path / "data.jsonl", tmp_path / "table"
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b</think>c"}]
    data.write_text(json.dumps({"messages": chat}))
    splitting = TEMPLATE.replace("m['content']", "m['content'].split('</think>')[-1]")
    codes = []
    for template in (TEMPLATE, splitting):
        words = opened("qwen", template)
        form = tokenizer_table(words.backend_tokenizer, chat_of(words, tmp_path))
        table.write_bytes(form)
        done = packed(program, table, data)
        codes.append(done.returncode)
    assert codes == [0, 1]
    assert b"line 1 is not an example: an answer with </think>, which the" in done.stderr


def test_error_counts_the_lines_left_out(program: Path, tmp_path: Path) -> None:
    data, table = tmp_path / "data.jsonl", tmp_path / "table"
    table.write_bytes(tokenizer_table(opened("gpt2", None).backend_tokenizer, Chat()))
    rows = [{"text": " "}, {"text": "ab " * LENGTH}, {"text": "cd " * LENGTH}]
    data.write_text("\n".join(map(json.dumps, rows)))
    done = packed(program, table, data)
    assert done.returncode == 1
    assert b"leaves no example: 1 hold nothing to learn, 2 are longer than 96" in done.stderr


BAD: dict[str, tuple[str, str]] = {
    "no object": ("[1]", "it is not an object"),
    "no end": ('{"text": "a', "a text that does not end"),
    "two values": ('{"text": "a"} {}', "something behind the object"),
    "two after a carriage return": ('{"text": "a"}\r{}', "something behind the object"),
    "zero byte": ('{"text": "a"}\0', "something behind the object"),
    "half pair": ('{"text": "\\ud800"}', "half of a surrogate pair"),
    "no key": ('{"prompt": "a"}', "no messages, no prompt with completion"),
    "no role": ('{"messages": [{"content": "a"}]}', "without role or content"),
    "number": ('{"text": "a", "n": 1.}', "a number without digits"),
    "word": ('{"text": "a", "n": nul}', "no value of JSON"),
    "deep": ('{"text": "a", "n": ' + "[" * 99 + "]" * 99 + "}", "nested too deep"),
    "twice": ('{"text": "a", "text": "b"}', "there twice"),
    "other key": ('{"prompt": "a", "text": "b"}', "no messages, no prompt with completion"),
    "no text": ('{"prompt": "a", "completion": 5, "text": "b"}', "is no text"),
    "tools": ('{"text": "a", "tools": [{}]}', "tools, which are not read; `pockengine pack-lm`"),
    "call": (
        '{"messages": [{"role": "assistant", "content": null, "tool_calls": [1]}]}',
        "tool calls, which are not read; `pockengine pack-lm` packs",
    ),
    "thought": (
        '{"messages": [{"role": "assistant", "content": "a", "thinking": "b"}]}',
        "thoughts beside a message's content",
    ),
    "list": (
        '{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}',
        "a content that is a list; `pockengine pack-lm` packs",
    ),
    "null": ('{"messages": [{"role": "user", "content": null}]}', "without role or content"),
    "role": ('{"messages": [{"role": "größe", "content": "a"}]}', "not of ASCII letters"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_name_invalid_lines(case: str, program: Path, tmp_path: Path) -> None:
    words = opened("gpt2", None)
    line, fault = BAD[case]
    data, table = tmp_path / "data.jsonl", tmp_path / "table"
    table.write_bytes(tokenizer_table(words.backend_tokenizer, chat_of(words, tmp_path)))
    data.write_text('{"text": "a cow"}\n\n' + line, newline="")
    done = packed(program, table, data)
    assert done.returncode == 1
    assert f"{data}, line 3 is not an example" in done.stderr.decode()
    assert fault in done.stderr.decode()
