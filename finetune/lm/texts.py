"""Texts to learn from: a file of JSON lines, or one plain text.

Each line of a `.jsonl` file is an object of one form:

    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
    {"prompt": "...", "completion": "..."}
    {"text": "..."}

The content of a message may be a list of parts of the type text. A chat may call tools, which its
line describes (tools.py):

    {"messages": [..., {"role": "assistant", "tool_calls": [...]}], "tools": [...]}

Preferences are pairs of answers to one prompt, as texts or as messages:

    {"prompt": "...", "chosen": "...", "rejected": "..."}

A rated answer has a label, true or false, or a reward, a number:

    {"prompt": "...", "completion": "...", "label": true}
    {"messages": [...], "reward": 0.5}

A prompt to answer is a text, or messages of which the last is not an answer. Other fields of its
line are passed to the function that rewards answers:

    {"prompt": "...", "solution": "..."}

A folder is a data set that the package `datasets` has saved, with rows of these forms. Any other
file is one long text, which is learned in pieces. Lines end only at a line feed: JSON strings may
contain Unicode's other line ends.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pockengine.errors import FinetuneError, reason_of
from pockengine.finetune.lm.arrow import read_dataset
from pockengine.finetune.lm.tools import CALLS, TOOLS, Object, read_calls, read_tools

Message = Mapping[str, Any]

FORMS = "messages, prompt with completion, or text"
PAIRS = "prompt, chosen and rejected"
RATED = "messages, or prompt with completion, and a label (true or false) or a reward"

PROMPTS = "prompt: a text, or messages"

MOST_REWARD = 1e18
"""Rewards are f32, and deviations from their mean are squared."""
_UNREAD = ("reasoning_content", "thinking")
"""Fields of messages that templates may render, and that are not read."""
_RESULT = ("name", "tool_call_id")
"""Optional texts of a message of the role `tool`."""

T = TypeVar("T")
Parse = Callable[[int, Mapping[str, Any]], T]


@dataclass(frozen=True)
class Example:
    """A text of a line: messages of a chat, or a prompt (possibly empty) with its completion.

    Answers count from message number `first`. `tools` are the functions that they may call.
    """

    line: int
    messages: Sequence[Message] = ()
    prompt: str = ""
    completion: str = ""
    first: int = 0
    tools: Sequence[Object] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it has no text to train on."""
        if self.messages:
            return not any(
                message["role"] == "assistant" and (message["content"].strip() or CALLS in message)
                for message in self.messages[self.first :]
            )
        return not self.completion.strip()

    @property
    def question(self) -> "Example":
        """What an answer follows: the text before the last message, or a question that ends it."""
        if not self.messages:
            return Example(self.line, prompt=self.prompt)
        ended = self.messages[-1]["role"] == "assistant"
        before = self.messages[:-1] if ended else self.messages
        return Example(self.line, before, tools=self.tools)


@dataclass(frozen=True)
class Pair:
    """Two answers to one prompt, of which the first is preferred."""

    chosen: Example
    rejected: Example


@dataclass(frozen=True)
class PromptExample:
    """A prompt to answer, and the fields of its line."""

    example: Example
    row: Mapping[str, Any]


@dataclass(frozen=True)
class Rated:
    """An answer with its label, 1 or -1, or its reward."""

    example: Example
    rating: float


def read_examples(path: Path) -> list[Example]:
    """Read a file; FinetuneError if it is empty, or for the first malformed line."""
    if is_plain(path):
        return [Example(1, completion=_read(path, FORMS))]
    return _parse_all(path, _example, FORMS)


def is_plain(path: Path) -> bool:
    """Whether a file is one long text."""
    return not path.is_dir() and path.suffix.lower() not in (".jsonl", ".ndjson", ".json")


def read_pairs(path: Path) -> list[Pair]:
    """Read preferences; FinetuneError if there are none, or for the first malformed line."""
    return _parse_all(path, _pair, PAIRS)


def read_rated(path: Path, key: str) -> list[Rated]:
    """Read answers with a `label` or a `reward`; FinetuneError as of pairs."""

    def parse(number: int, row: Mapping[str, Any]) -> Rated:
        return Rated(_example(number, row), _RATINGS[key](row[key]))

    return _parse_all(path, parse, RATED)


def read_prompts(path: Path) -> list[PromptExample]:
    """Read prompts; FinetuneError as of pairs."""
    return _parse_all(path, _prompt_example, PROMPTS)


def _prompt_example(number: int, row: Mapping[str, Any]) -> PromptExample:
    if isinstance(row["prompt"], str):
        return PromptExample(Example(number, prompt=_text(row, "prompt")), row)
    messages = _messages(row, "prompt")
    if not messages or messages[-1]["role"] == "assistant":
        raise ValueError("its prompt has no last message that an answer follows")
    return PromptExample(Example(number, messages, tools=read_tools(row)), row)


def _label(value: Any) -> float:
    if not isinstance(value, bool):
        raise TypeError(f"label is {_kind(value)}, not true or false")
    return 1.0 if value else -1.0


def _reward(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"reward is {_kind(value)}, not a number")
    if not abs(value) < MOST_REWARD:
        raise ValueError(f"reward is not a number below {MOST_REWARD:g}")
    return float(value)


_RATINGS: Mapping[str, Callable[[Any], float]] = {"label": _label, "reward": _reward}


def _read(path: Path, forms: str, newline: str | None = None) -> str:
    try:
        with path.open(encoding="utf-8-sig", newline=newline) as file:  # skips a byte order mark
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise FinetuneError(
            f"{path} cannot be read as text in UTF-8: {reason_of(error)}; save it so"
        ) from error
    if not text.strip():
        raise FinetuneError(f"{path} is empty; give JSON lines with {forms}")
    return text


def _parse_all(path: Path, parse: Parse[T], forms: str) -> list[T]:
    """Parse the rows of a folder, or the lines of a file."""
    if path.is_dir():
        rows = enumerate(read_dataset(path), 1)
        return [_parsed(path, number, row, parse=parse, forms=forms) for number, row in rows]
    lines = _lines(_read(path, forms, newline=""))  # a carriage return is a space of JSON
    return [_parsed(path, number, line, parse=parse, forms=forms) for number, line in lines]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    return ((n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip())


def _parsed(path: Path, number: int, line: Any, parse: Parse[T], forms: str) -> T:
    try:
        row = json.loads(line) if isinstance(line, str) else line
        if not isinstance(row, dict):
            raise TypeError(f"it is {_kind(row)}")
        return parse(number, row)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise FinetuneError(
            f"{path}, line {number} is not an example: {_fault(error)}; a line is a JSON object "
            f"with {forms}"
        ) from error


def _fault(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON: {error.msg}, column {error.colno}"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def _example(number: int, row: Mapping[str, Any]) -> Example:
    if "messages" in row:
        return Example(number, _messages(row, "messages"), tools=read_tools(row))
    _check_known(row, (TOOLS,))
    if "completion" in row:
        return Example(number, prompt=_text(row, "prompt"), completion=_text(row, "completion"))
    if "prompt" in row:
        raise KeyError("completion")
    return Example(number, completion=_text(row, "text"))


def _pair(number: int, row: Mapping[str, Any]) -> Pair:
    if isinstance(row["prompt"], str):
        _check_known(row, (TOOLS,))
        prompt = _text(row, "prompt")
        answers = (_text(row, name) for name in ("chosen", "rejected"))
        return Pair(*(Example(number, prompt=prompt, completion=answer) for answer in answers))
    before, tools = _messages(row, "prompt"), read_tools(row)
    chats = ([*before, *_messages(row, name)] for name in ("chosen", "rejected"))
    return Pair(*(Example(number, chat, first=len(before), tools=tools) for chat in chats))


def _messages(row: Mapping[str, Any], name: str) -> list[Message]:
    messages = row[name]
    if not isinstance(messages, list):
        raise TypeError(f"{name} is {_kind(messages)}, not a list of messages")
    return [_message(message) for message in messages]


def _message(fields: Any) -> Message:
    if not isinstance(fields, dict):
        raise TypeError(f"a message is {_kind(fields)}, not an object")
    _check_known(fields, _UNREAD)
    role, calls = _text(fields, "role"), read_calls(fields)
    if calls and role != "assistant":
        raise ValueError(f"{CALLS} belong to the role assistant, not to {role}")
    called = calls and fields.get("content") is None
    message: dict[str, Any] = {"role": role, "content": "" if called else _content(fields)}
    if calls:
        message[CALLS] = calls
    named = [name for name in _RESULT if role == "tool" and fields.get(name) is not None]
    return message | {name: _text(fields, name) for name in named}


def _content(fields: Mapping[str, Any]) -> str:
    """Return a content, which may be a list of texts to join, as templates of lists do."""
    parts = fields["content"]
    if not isinstance(parts, list):
        return _text(fields, "content")
    for part in parts:
        if not isinstance(part, dict) or part.get("type", "text") != "text":
            raise ValueError('content has a part that is not {"type": "text", "text": "..."}')
    return "".join(_text(part, "text") for part in parts)


def _check_known(fields: Mapping[str, Any], unread: Collection[str]) -> None:
    """Raise ValueError for a field that has a meaning, and that would be dropped."""
    for name in unread:
        if fields.get(name):
            raise ValueError(f"{name} is not read; leave it out, or write it into a text")


def _text(row: Mapping[str, Any], name: str) -> str:
    text = row[name]
    if not isinstance(text, str):
        raise TypeError(f"{name} is {_kind(text)}, not a text")
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON allows it, UTF-8 does not
        raise ValueError(f"{name} has half of a surrogate pair") from error
    return text


def _kind(value: Any) -> str:
    """Return the kind of a JSON value in words."""
    if value is None or isinstance(value, bool | float) or (type(value) is int and value < 1 << 62):
        return json.dumps(value)
    kinds = {str: "a text", int: "a number", list: "a list", dict: "an object"}
    return kinds.get(type(value), type(value).__name__)
