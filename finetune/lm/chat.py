"""A chat template as literal pieces, for devices that render no templates.

The template is rendered for turns of marked texts. The text between the marks gives the pieces, if
every turn is written the same way regardless of what follows.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pockengine.errors import FinetuneError, reason_of
from pockengine.finetune.lm.templates import render, render_question
from pockengine.finetune.lm.texts import Example
from pockengine.models.tokenizer_table import Chat, ChatForm
from pockengine.models.tries import NONE

_SYSTEM, _QUESTION, _ANSWER = "SYSTEMTEXT", "QUESTIONONE", "ANSWERONE"
_NEXT_QUESTION, _NEXT_ANSWER = "QUESTIONTWO", "ANSWERTWO"
_THOUGHT = "THOUGHT</think>" + _ANSWER
_THOUGHT_IN_LINES = "THOUGHT</think>\n\n" + _ANSWER
_GENERATION = "generation_config.json"
_UNREADABLE = (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError)


def _spaced(text: str) -> str:
    return f" \n{text} \n"


_SPACED = {
    ChatForm.STRIPS_USER: (_spaced(_QUESTION), _ANSWER),
    ChatForm.STRIPS_ANSWER: (_QUESTION, _spaced(_ANSWER)),
}
"""Turns that the template writes without the added spaces if it has the flag."""


def chat_of(tokenizer: Any, folder: Path) -> Chat:
    """Return the pieces of a tokenizer's template, and the tokens that end an answer or a text.

    Without a template, texts are completed. FinetuneError if it does not split into pieces.
    """
    end = tokenizer.eos_token_id
    chat = Chat(stops=end_tokens(tokenizer, folder), end=None if end is None else int(end))
    if not getattr(tokenizer, "chat_template", None):
        return chat
    turn = _messages(_QUESTION, _ANSWER, _NEXT_QUESTION)
    one = render_question(tokenizer, Example(0, turn[:1])).text
    two = render_question(tokenizer, Example(0, turn)).text
    ask, _, answer = one.partition(_QUESTION)
    earlier, _, following = two.removeprefix(one).partition(_ANSWER)
    again, _, _ = following.partition(_NEXT_QUESTION)
    expected = one + earlier + _ANSWER + again + _NEXT_QUESTION + answer
    if two != expected or not answer:
        raise FinetuneError(
            "the tokenizer's chat template writes a turn otherwise once others follow; a device "
            "needs one of literal pieces: simplify it, or leave it out to complete texts"
        )
    chat = replace(chat, ask=ask, answer=answer, ask_again=again, earlier=earlier)
    chat = _with_form(tokenizer, _with_learned(tokenizer, chat))
    return replace(chat, form=chat.form | _forgetting(tokenizer, two))


def _forgetting(tokenizer: Any, expected: str) -> ChatForm:
    """Return what an answer loses in a chat, the `expected` text, once a question follows."""
    lines = ChatForm.FORGETS | ChatForm.FORGETS_LINES
    for answer, form in ((_THOUGHT_IN_LINES, lines), (_THOUGHT, ChatForm.FORGETS)):
        try:
            turn = _messages(_QUESTION, answer, _NEXT_QUESTION)
            if render_question(tokenizer, Example(0, turn)).text == expected:
                return form
        except FinetuneError:  # the template refuses thoughts
            break
    return ChatForm(0)


def _messages(*contents: str, system: str | None = None) -> list[dict[str, str]]:
    """Return alternating questions and answers, after an optional system message."""
    first = [] if system is None else [{"role": "system", "content": system}]
    roles = ("user", "assistant") * len(contents)
    return first + [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]


def _rendered(tokenizer: Any, *contents: str, system: str | None = None) -> str:
    """Render a training chat; empty if the template refuses it, or changes an earlier answer."""
    try:
        rendered = render(tokenizer, Example(0, _messages(*contents, system=system)))
    except FinetuneError:
        return ""
    return "" if rendered.rewritten else rendered.text


def _with_learned(tokenizer: Any, chat: Chat) -> Chat:
    """Add the pieces that occur only in training chats."""
    whole = _rendered(tokenizer, _QUESTION, _ANSWER)
    opened, _, closed = whole.removeprefix(chat.ask + _QUESTION + chat.answer).partition(_ANSWER)
    generation = _rendered(tokenizer, _QUESTION).removeprefix(chat.ask + _QUESTION)
    with_system = _rendered(tokenizer, _QUESTION, _ANSWER, system=_SYSTEM)
    system, _, remaining = with_system.partition(_SYSTEM)
    instructed, _, _ = remaining.partition(_QUESTION)
    chat = replace(chat, opened=opened, closed=closed, generation_prompt=generation)
    return replace(chat, system=system, instructed=instructed)


def _joined(chat: Chat, *contents: str, system: str | None = None) -> str:
    """Assemble a chat from the pieces, as the C runtime does."""
    text = chat.ask if system is None else chat.system + system + chat.instructed
    for place, content in enumerate(contents):
        if place % 2:
            text += chat.answer + chat.opened + content + chat.closed
        else:
            text += (chat.ask_again.removeprefix(chat.closed) if place else "") + content
    return text


def _with_form(tokenizer: Any, chat: Chat) -> Chat:
    """Set a flag for each behavior of the template that the pieces reproduce."""

    def same(*contents: str) -> bool:
        return _rendered(tokenizer, *contents) == _joined(chat, *contents)

    form = ChatForm(0)
    if same(_QUESTION, _ANSWER):
        form |= ChatForm.LEARNS
    if chat.ask_again.startswith(chat.closed) and same(
        _QUESTION, _ANSWER, _NEXT_QUESTION, _NEXT_ANSWER
    ):
        form |= ChatForm.TURNS
    if not same(_QUESTION, _THOUGHT):
        form |= ChatForm.THINKS
    for flag, contents in _SPACED.items():
        if _rendered(tokenizer, *contents) == _joined(chat, _QUESTION, _ANSWER):
            form |= flag
        elif not same(*contents):
            form &= ~ChatForm.LEARNS
    return replace(chat, form=form | _system_form(tokenizer, chat, form))


def _system_form(tokenizer: Any, chat: Chat, form: ChatForm) -> ChatForm:
    """Return the flags of a system message; none if turns are stripped otherwise after one."""

    def same(contents: tuple[str, ...], system: str, *, strips: bool) -> bool:
        expected = _joined(chat, _QUESTION, _ANSWER, system=_SYSTEM)
        if not strips:
            expected = _joined(chat, *contents, system=system)
        return _rendered(tokenizer, *contents, system=system) == expected

    turns = all(same(each, _SYSTEM, strips=flag in form) for flag, each in _SPACED.items())
    if turns:
        for flag in (ChatForm.STRIPS_SYSTEM, ChatForm(0)):
            if same((_QUESTION, _ANSWER), _spaced(_SYSTEM), strips=bool(flag)):
                return ChatForm.SYSTEM | flag
    return ChatForm(0)


def end_tokens(tokenizer: Any, folder: Path) -> list[int]:
    """Return the tokens that end an answer: the tokenizer's, and generation_config.json's."""
    return sorted({*_ends(tokenizer, folder)})


def _ends(tokenizer: Any, folder: Path) -> Iterator[int]:
    if tokenizer.eos_token_id is not None:
        yield int(tokenizer.eos_token_id)
    path = folder / _GENERATION
    if not path.is_file():
        return
    try:
        ends = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
        ids = map(int, ends if isinstance(ends, list) else [] if ends is None else [ends])
        yield from (number for number in ids if 0 <= number < NONE)  # others are no tokens
    except _UNREADABLE as error:
        raise FinetuneError(f"{path} cannot be read: {reason_of(error)}; copy it again") from error
