"""Chats that call tools: read from lines, written by the template, and learned."""

import json
from pathlib import Path
from typing import Any

import pytest

from pockengine.errors import FinetuneError
from pockengine.finetune.lm.texts import Example, read_examples, read_pairs, read_prompts
from pockengine.finetune.lm.tokens import question_ids, tokenize
from pockengine.finetune.task import IGNORED
from pockengine.tests.finetune.lm.decoders import TEMPLATE, tokenizer
from pockengine.tests.finetune.lm.tool_chats import (
    CALL,
    CHAT,
    GROUPS_RESULTS,
    QUESTION,
    SCHEMA,
    WRITES_TOOLS,
)


def row(**fields: Any) -> str:
    return json.dumps({"messages": CHAT, "tools": [SCHEMA], **fields})


def read(path: Path, line: str) -> Example:
    file = path / "chats.jsonl"
    file.write_text(line)
    return read_examples(file)[0]


def test_calls_and_the_answer_after_the_result_are_learned(tmp_path: Path) -> None:
    words, example = tokenizer(WRITES_TOOLS), read(tmp_path, row())
    (tokens,) = tokenize(words, [example], 400).examples

    chat = [{**message, "content": message["content"] or ""} for message in CHAT]
    expected = words.apply_chat_template(chat, tools=[SCHEMA], tokenize=False)
    assert words.decode(tokens.ids) == expected
    learned = [label for label in tokens.labels if label != IGNORED]
    assert words.decode(learned) == '[weather {"city": "Kraków"}]</s>Yes.</s>'


def asking(*cities: str) -> dict[str, Any]:
    """Return an answer with a call for each city."""
    calls = [{"function": {"name": "weather", "arguments": {"city": city}}} for city in cities]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


RESULT, ANSWER = CHAT[2:]
SHAPES: dict[str, list[dict[str, Any]]] = {
    "several calls": [QUESTION, asking("東京", "Łódź"), RESULT, RESULT, ANSWER],
    "text with a call": [QUESTION, asking("Bath") | {"content": "Moment… 🐕"}, RESULT, ANSWER],
    "no calls": [QUESTION, ANSWER | {"tool_calls": []}],
    "null calls": [QUESTION, ANSWER | {"tool_calls": None}],
    "two questions": [*CHAT, QUESTION, asking("Bath"), RESULT, ANSWER],
    "the last is a call": [{"role": "system", "content": "Kurz!"}, QUESTION, asking("Bath")],
}


@pytest.mark.parametrize("template", [WRITES_TOOLS, GROUPS_RESULTS])
@pytest.mark.parametrize("tools", [[SCHEMA, SCHEMA], [], None])
@pytest.mark.parametrize("shape", SHAPES)
def test_tokens_are_those_of_transformers(
    tmp_path: Path, shape: str, tools: Any, template: str
) -> None:
    words, chat = tokenizer(template), SHAPES[shape]
    example = read(tmp_path, row(messages=chat, tools=tools))
    (tokens,) = tokenize(words, [example], 2000).examples

    chat = [{**message, "content": message["content"] or ""} for message in chat]
    expected = words.apply_chat_template(chat, tools=tools or None, return_dict=True)
    assert tokens.ids == expected["input_ids"]
    learned = words.decode([label for label in tokens.labels if label != IGNORED])
    answers = [message for message in chat if message["role"] == "assistant"]
    assert learned.count("</s>") == len(answers)
    assert all(message["content"] in learned for message in answers)


def test_tools_may_be_a_text(tmp_path: Path) -> None:
    assert read(tmp_path, row(tools=json.dumps([SCHEMA]))).tools == (SCHEMA,)
    assert read(tmp_path, row(tools="")).tools == ()
    for tools in ("weather", '"weather"'):
        with pytest.raises(FinetuneError, match="tools is not a list of objects"):
            read(tmp_path, row(tools=tools))


def test_a_list_of_texts_is_joined(tmp_path: Path) -> None:
    chat = [QUESTION | {"content": parts("ra", "in?")}, *CHAT[1:]]
    chat[2] = RESULT | {"content": parts("8", " mm ☔")}
    messages = read(tmp_path, row(messages=chat)).messages
    assert [messages[n]["content"] for n in (0, 2)] == ["rain?", "8 mm ☔"]
    for bad in ([{"type": "image"}], ["8 mm"], [None]):
        chat[2] = RESULT | {"content": bad}
        with pytest.raises(FinetuneError, match="content has a part that is not"):
            read(tmp_path, row(messages=chat))


def test_a_template_that_joins_arguments_takes_them_as_texts(tmp_path: Path) -> None:
    """DeepSeek's templates do."""
    template = WRITES_TOOLS.replace(" {{ c.function.arguments | tojson }}", "{{ c.n }}").replace(
        "c.function.name", "c.function.name + ': ' + c.function.arguments"
    )
    example, words = read(tmp_path, row()), tokenizer(template)
    (tokens,) = tokenize(words, [example], 400).examples
    learned = [label for label in tokens.labels if label != IGNORED]
    assert words.decode(learned) == '[weather: {"city": "Kraków"}]</s>Yes.</s>'


def test_arguments_may_be_a_text_as_the_api_gives_them(tmp_path: Path) -> None:
    told = {"function": {"name": "weather", "arguments": json.dumps({"city": "Kraków"})}}
    chat = [QUESTION, {"role": "assistant", "content": "", "tool_calls": [told]}]

    (call,) = read(tmp_path, row(messages=chat)).messages[1]["tool_calls"]
    assert call == {"function": {"name": "weather", "arguments": {"city": "Kraków"}}}


def test_a_call_of_a_function_alone_is_read_and_learned(tmp_path: Path) -> None:
    """Some data sets leave out the object around name and arguments."""
    template = WRITES_TOOLS.replace("c.function.", "c.")
    bare = {"name": "now"}
    chat = [QUESTION, {"role": "assistant", "content": "", "tool_calls": [bare]}]
    example = read(tmp_path, json.dumps({"messages": chat}))

    (tokens,) = tokenize(tokenizer(template), [example], 200).examples
    assert tokens.counted == len("[now {}]") + 1


def test_questions_show_the_tools(tmp_path: Path) -> None:
    words = tokenizer(WRITES_TOOLS)
    text = words.decode(question_ids(words, read(tmp_path, row()).question))
    assert '"name": "weather"' in text
    assert text.endswith("<s>tool\n8 mm</s><s>assistant\n")


def test_preferences_and_prompts_have_tools(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    answers = {"chosen": CHAT[1:2], "rejected": CHAT[3:]}
    file.write_text(json.dumps({"prompt": [QUESTION], **answers, "tools": [SCHEMA]}))

    (pair,), (prompt,) = read_pairs(file), read_prompts(file)
    assert [pair.chosen.tools, pair.rejected.tools, prompt.example.tools] == [(SCHEMA,)] * 3


@pytest.mark.parametrize("template", [None, TEMPLATE])
@pytest.mark.parametrize("part", ["tools", "tool_calls"])
def test_chats_whose_tools_would_be_left_out_are_refused(
    tmp_path: Path, template: str | None, part: str
) -> None:
    example = read(
        tmp_path, row(messages=CHAT[:1] + CHAT[3:]) if part == "tools" else row(tools=[])
    )
    with pytest.raises(FinetuneError, match=rf"line 1: .* no chat template that writes {part};"):
        tokenize(tokenizer(template), [example], 400)


def test_a_chat_whose_result_would_be_left_out_is_refused(tmp_path: Path) -> None:
    template = WRITES_TOOLS.replace("m.content }}", "m.content if m.role != 'tool' }}")
    with pytest.raises(FinetuneError, match="no chat template that writes the role tool;"):
        tokenize(tokenizer(template), [read(tmp_path, row())], 400)


@pytest.mark.parametrize(
    ("calls", "fault"),
    [
        ({}, "content is null"),
        ([1], "tool_calls is not a list of objects"),
        ([{"id": "1"}], "has no function with a name"),
        ([{"function": {"name": "f", "arguments": "city"}}], "call of f are not a JSON object"),
        ([{"function": {"name": "f", "arguments": [1]}}], "call of f are not a JSON object"),
        ([{"function": {"name": "\ud800"}}], "tool_calls has half of a surrogate pair"),
    ],
)
def test_error_names_a_malformed_call(tmp_path: Path, calls: Any, fault: str) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    with pytest.raises(FinetuneError, match=f"line 1 is not an example: .*{fault}"):
        read(tmp_path, row(messages=[QUESTION, message]))


def test_error_names_a_call_of_another_role(tmp_path: Path) -> None:
    message = {"role": "user", "content": "", "tool_calls": [CALL]}
    with pytest.raises(FinetuneError, match="belong to the role assistant, not to user"):
        read(tmp_path, row(messages=[message]))
