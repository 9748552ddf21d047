"""Texts to learn from: a file of JSON lines, or one plain text.

Each line of a `.jsonl` file is an object of one form:

    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
    {"prompt": "...", "completion": "..."}
    {"text": "..."}

Any other file is one long text, which is learned in pieces. Lines end only at a line feed: JSON
strings may contain Unicode's other line ends.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pockengine.errors import FinetuneError

Message = Mapping[str, str]

FORMS = "messages, prompt with completion, or text"


@dataclass(frozen=True)
class Example:
    """A text of a line: messages of a chat, or a prompt (possibly empty) with its completion."""

    line: int
    messages: Sequence[Message] = ()
    prompt: str = ""
    completion: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to learn in it."""
        if self.messages:
            return not any(
                message["role"] == "assistant" and message["content"].strip()
                for message in self.messages
            )
        return not self.completion.strip()

    @property
    def question(self) -> "Example":
        """The text before the last answer."""
        if not self.messages:
            return Example(self.line, prompt=self.prompt)
        ends = [i for i, message in enumerate(self.messages) if message["role"] == "assistant"]
        return Example(self.line, self.messages[: ends[-1]])

    @property
    def answer(self) -> str:
        """The last answer."""
        answers = [m["content"] for m in self.messages if m["role"] == "assistant"]
        return answers[-1] if answers else self.completion


def read_examples(path: Path) -> list[Example]:
    """Read a file; FinetuneError if it is empty, or for the first malformed line."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # skips a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        raise FinetuneError(
            f"{path} cannot be read as text in UTF-8: {error}; save it so"
        ) from error
    if not text.strip():
        raise FinetuneError(f"{path} is empty; give JSON lines with {FORMS}, or a text")
    if path.suffix not in (".jsonl", ".json"):
        return [Example(1, completion=text)]
    lines = enumerate(text.split("\n"), 1)
    return [_example(path, number, line) for number, line in lines if line.strip()]


def _example(path: Path, number: int, line: str) -> Example:
    try:
        row = json.loads(line)
        if not isinstance(row, dict):
            raise TypeError("it is no object")
        if "messages" in row:
            return Example(number, [_message(message) for message in row["messages"]])
        if "completion" in row:
            return Example(number, prompt=_text(row, "prompt"), completion=_text(row, "completion"))
        return Example(number, completion=_text(row, "text"))
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise FinetuneError(
            f"{path}, line {number} is no example: {error!r}; a line is a JSON object with {FORMS}"
        ) from error


def _message(given: Any) -> Message:
    return {name: _text(given, name) for name in ("role", "content")}


def _text(row: Mapping[str, Any], name: str) -> str:
    text = row[name]
    if not isinstance(text, str):
        raise TypeError(f"{name} is {type(text).__name__}, not text")
    text.encode()  # raises for lone surrogates, which JSON allows and UTF-8 does not
    return text
