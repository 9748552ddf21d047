"""A chat template as literal pieces, for devices that render no templates.

The template is rendered for two turns of marked texts. The text between the marks gives the pieces,
if every turn is written the same way regardless of what follows.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pockengine.errors import FinetuneError
from pockengine.finetune.lm.templates import render_question
from pockengine.finetune.lm.texts import Example
from pockengine.models.tokenizer_table import Chat

_ASKED, _ANSWERED, _ASKED_AGAIN = "QUESTIONONE", "ANSWERONE", "QUESTIONTWO"
_GENERATION = "generation_config.json"


def chat_of(tokenizer: Any, folder: Path) -> Chat:
    """Return the pieces of a tokenizer's template, and the tokens that end an answer.

    Without a template, texts are completed. FinetuneError if it does not split into pieces.
    """
    stops = sorted({*_ends(tokenizer, folder)})
    if not getattr(tokenizer, "chat_template", None):
        return Chat(stops=stops)
    turn = [
        {"role": "user", "content": _ASKED},
        {"role": "assistant", "content": _ANSWERED},
        {"role": "user", "content": _ASKED_AGAIN},
    ]
    one = render_question(tokenizer, Example(0, turn[:1])).text
    two = render_question(tokenizer, Example(0, turn)).text
    ask, _, answer = one.partition(_ASKED)
    again, _, _ = two.removeprefix(one + _ANSWERED).partition(_ASKED_AGAIN)
    if two != one + _ANSWERED + again + _ASKED_AGAIN + answer or not answer:
        raise FinetuneError(
            "the tokenizer's chat template writes a turn otherwise once others follow; a device "
            "needs one of literal pieces: simplify it, or leave it out to complete texts"
        )
    return Chat(ask, answer, again, stops)


def _ends(tokenizer: Any, folder: Path) -> Iterator[int]:
    """Yield the tokens that end an answer: the tokenizer's, and those of the model's generation."""
    if tokenizer.eos_token_id is not None:
        yield int(tokenizer.eos_token_id)
    path = folder / _GENERATION
    if not path.is_file():
        return
    try:
        ends = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
        yield from map(int, ends if isinstance(ends, list) else [] if ends is None else [ends])
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise FinetuneError(f"{path} cannot be read: {error}; copy it again") from error
