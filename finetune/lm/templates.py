"""Convert a chat to one text, and mark the answers to learn.

A tokenizer's own template is rendered by transformers, in jinja2's sandbox, in a process with
limits. Without a template, a turn is `### Role`, its text, and an empty line.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from pockengine.errors import FinetuneError
from pockengine.finetune.lm.template_process import TemplateProcess
from pockengine.finetune.lm.texts import Example, Message
from pockengine.finetune.lm.tools import CALLS, TOOLS, Object, with_texts

ASSISTANT = "assistant"


@dataclass(frozen=True)
class Rendered:
    """A text, the parts to learn, and whether it includes its begin and end tokens.

    `rewritten`: the template changes some answers once later turns follow; these are not learned.
    """

    text: str
    learned: tuple[tuple[int, int], ...]
    marked: bool = False
    ends: bool = True
    rewritten: bool = False


def render(tokenizer: Any, example: Example) -> Rendered:
    """Format an example as one text.

    The answers are learned, each including the template's end mark, except those that the template
    changes once later turns follow: Qwen3's drops their thoughts. FinetuneError if the template
    refuses the chat, or prompts for the last answer by text that it does not write before one.
    """
    if not example.messages:
        start = len(example.prompt)
        text = example.prompt + example.completion
        return Rendered(text, ((start, len(text)),) if example.completion else ())
    own = bool(getattr(tokenizer, "chat_template", None))
    write = _own(tokenizer) if own else _plain
    messages = list(example.messages)
    whole = _written(write, example, messages, False)
    _check_tools(write, example, whole, False)
    learned, ends, rewritten = [], False, False
    for index, message in enumerate(messages):
        if message["role"] == ASSISTANT and index >= example.first:
            before = _written(write, example, messages[:index], True)
            after = _written(write, example, messages[: index + 1], False)
            if whole.startswith(before) and whole.startswith(after):
                learned.append((len(before), len(after)))
                ends = index + 1 == len(messages)
            elif index + 1 == len(messages):
                raise FinetuneError(
                    f"line {example.line}: the tokenizer's chat template prompts for an answer by "
                    "text that it does not write before one; give lines with prompt and completion"
                )
            else:
                rewritten = True
    return Rendered(whole, tuple(learned), own, ends and not own, rewritten=rewritten)


def render_question(tokenizer: Any, question: Example) -> Rendered:
    """Format the prompt of an answer."""
    if not question.messages:
        return Rendered(question.prompt, (), ends=False)
    own = bool(getattr(tokenizer, "chat_template", None))
    write = _own(tokenizer) if own else _plain
    text = _written(write, question, list(question.messages), True)
    _check_tools(write, question, text, True)
    return Rendered(text, (), own, False)


_processes: WeakKeyDictionary[Any, tuple[Any, TemplateProcess]] = WeakKeyDictionary()
"""Processes by tokenizer, with its template at the process's start."""


def _own(tokenizer: Any) -> Any:
    template, process = _processes.get(tokenizer, (None, None))
    if process is None or template != tokenizer.chat_template:
        process = TemplateProcess(tokenizer)
        _processes[tokenizer] = tokenizer.chat_template, process
    return partial(_rendered, process)


def _rendered(
    process: TemplateProcess,
    messages: Sequence[Message],
    answer_follows: bool,
    tools: Sequence[Object],
) -> str:
    """Render a chat; arguments are objects, or texts for a template that refuses objects."""
    try:
        return process.render(messages, answer_follows, tools)
    except ValueError:
        as_texts = with_texts(messages)
        if as_texts != list(messages):
            with suppress(ValueError):
                return process.render(as_texts, answer_follows, tools)
        raise


def _plain(messages: Sequence[Message], answer_follows: bool, tools: Sequence[Object]) -> str:
    turns = [f"### {m['role'].capitalize()}\n{m['content']}\n\n" for m in messages]
    return "".join(turns) + ("### Assistant\n" if answer_follows else "")


def _check_tools(write: Any, example: Example, text: str, answer_follows: bool) -> None:
    """Raise FinetuneError if a chat's text leaves out its tools, calls of them, or results."""
    silent = [{k: v for k, v in one.items() if k != CALLS} for one in example.messages]
    void = [{**one, "content": ""} if one["role"] == "tool" else one for one in example.messages]
    for part, other in (
        (TOOLS, replace(example, tools=())),
        (CALLS, replace(example, messages=silent)),
        ("the role tool", replace(example, messages=void)),
    ):
        with suppress(ValueError):  # a template may refuse a result without a call
            if other != example and write(other.messages, answer_follows, other.tools) == text:
                raise FinetuneError(
                    f"line {example.line}: the tokenizer has no chat template that writes {part}; "
                    "give one that does, or write them into the content of messages"
                )


def _written(
    write: Any, example: Example, messages: Sequence[Message], answer_follows: bool
) -> str:
    if not messages:
        return ""
    try:
        text: str = write(messages, answer_follows, example.tools)
    except ValueError as error:
        raise FinetuneError(
            f"line {example.line}: the tokenizer's chat template refuses it: {error}; change the "
            "roles, or their order"
        ) from error
    return text
