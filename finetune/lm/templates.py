"""How a chat becomes one text, and which parts of it are answers to learn.

A tokenizer's own template is rendered by transformers, in jinja2's sandbox. Without one, a turn is
`### Role`, its words, and an empty line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pockengine.errors import FinetuneError
from pockengine.finetune.lm.texts import Example, Message

ASSISTANT = "assistant"


@dataclass(frozen=True)
class Rendered:
    """A text, the parts of it that are learned, and whether it has its marks of begin and end."""

    text: str
    learned: tuple[tuple[int, int], ...]
    marked: bool = False
    ends: bool = True


def render(tokenizer: Any, example: Example) -> Rendered:
    """Write an example as one text; FinetuneError where the template takes no such chat.

    What is learned is the answers, each with what the template ends it by.
    """
    if not example.messages:
        start = len(example.prompt)
        text = example.prompt + example.completion
        return Rendered(text, ((start, len(text)),) if example.completion else ())
    own = bool(getattr(tokenizer, "chat_template", None))
    write = _own(tokenizer) if own else _plain
    messages = list(example.messages)
    whole = _written(write, example, messages, False)
    learned, ends = [], False
    for index, message in enumerate(messages):
        if message["role"] == ASSISTANT:
            before = _written(write, example, messages[:index], True)
            after = _written(write, example, messages[: index + 1], False)
            if not (whole.startswith(before) and whole.startswith(after)):
                raise FinetuneError(
                    f"line {example.line}: the tokenizer's template writes earlier turns otherwise "
                    "once there are later ones; give an example for each answer"
                )
            learned.append((len(before), len(after)))
            ends = index + 1 == len(messages)
    return Rendered(whole, tuple(learned), own, ends and not own)


def render_question(tokenizer: Any, question: Example) -> Rendered:
    """Write what an answer is to follow."""
    if not question.messages:
        return Rendered(question.prompt, (), ends=False)
    own = bool(getattr(tokenizer, "chat_template", None))
    write = _own(tokenizer) if own else _plain
    return Rendered(_written(write, question, list(question.messages), True), (), own, False)


def _own(tokenizer: Any) -> Any:
    def write(messages: Sequence[Message], answer_follows: bool) -> str:
        text: str = tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=answer_follows
        )
        return text

    return write


def _plain(messages: Sequence[Message], answer_follows: bool) -> str:
    turns = [f"### {m['role'].capitalize()}\n{m['content']}\n\n" for m in messages]
    return "".join(turns) + ("### Assistant\n" if answer_follows else "")


def _written(
    write: Any, example: Example, messages: Sequence[Message], answer_follows: bool
) -> str:
    if not messages:
        return ""
    try:
        text: str = write(messages, answer_follows)
    except Exception as error:  # a template raises what it likes
        raise FinetuneError(
            f"line {example.line}: the tokenizer's chat template refuses it: {error}; change the "
            "roles, or their order"
        ) from error
    return text
