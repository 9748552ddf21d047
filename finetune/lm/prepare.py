"""A model with its texts, made ready: rows to train on, rows that judge, questions to answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.compiler.ir import Graph
from pockengine.errors import FinetuneError
from pockengine.finetune.lm.packing import Packed, pack
from pockengine.finetune.lm.settings import Settings, Texts
from pockengine.finetune.lm.texts import Example, read_examples
from pockengine.finetune.lm.tokens import (
    Dataset,
    Tokens,
    open_tokenizer,
    pieces,
    question_ids,
    tokenize,
)
from pockengine.models.causal_lm import CausalLM, open_causal_lm

QUESTIONS = 3
"""Of held-out examples, which are answered before and after."""
_BEGINNING = 16
"""Tokens of a text without a question that stand in for one."""


@dataclass(frozen=True)
class Parts:
    """Texts as tokens: those that train, and those that judge; `examples` are by their lines."""

    training: Sequence[Tokens]
    judging: Sequence[Tokens]
    examples: Mapping[int, Example]
    remarks: Sequence[str]


@dataclass(frozen=True)
class FineTuneInputs:
    """All that a fine-tuning needs of its model and its texts."""

    model: CausalLM
    tokenizer: Any
    graph: Graph
    training: Packed
    held_out: Packed | None
    questions: Sequence[Sequence[int]]
    remarks: Sequence[str]


def prepare(settings: Settings, prompts: Sequence[str] = ()) -> FineTuneInputs:
    """Read model and texts; FinetuneError or ImportModelError name what does not fit.

    `prompts` are questions in the place of those of held-out examples.
    """
    model = open_decoder(settings.model, settings.course.length)
    course, texts = settings.course, settings.texts
    tokenizer = open_tokenizer(settings.model, model.vocabulary)
    parts = read_parts(tokenizer, texts, course.length, course.seed)
    judging = parts.judging
    return FineTuneInputs(
        model,
        tokenizer,
        model.graph(course.batch, course.length),
        pack(parts.training, course.length, texts.together),
        pack(judging, course.length, texts.together) if judging else None,
        _questions(tokenizer, prompts, judging, parts.examples),
        parts.remarks,
    )


def open_decoder(folder: Path, length: int) -> CausalLM:
    """Open a decoder; FinetuneError where it knows no positions of so many tokens."""
    model = open_causal_lm(folder)
    if model.longest is not None and length > model.longest:
        raise FinetuneError(
            f"--max-length {length} is beyond the {model.longest} tokens that {folder} knows "
            "positions of; give at most these"
        )
    return model


def read_parts(tokenizer: Any, texts: Texts, length: int, seed: int) -> Parts:
    """Read what trains and what judges; FinetuneError says what does not fit."""
    learned, examples = _read(tokenizer, texts.data, length, texts.truncate)
    remarks = learned.remarks(texts.data, length)
    training: Sequence[Tokens] = learned.examples
    judging: Sequence[Tokens] = ()
    if texts.validation is not None:
        judged, examples = _read(tokenizer, texts.validation, length, texts.truncate)
        remarks += judged.remarks(texts.validation, length)
        judging = judged.examples
    elif texts.hold_out:
        training, judging = _parted(training, texts.hold_out, seed)
    return Parts(training, judging, examples, remarks)


def _read(
    tokenizer: Any, path: Path, length: int, truncate: bool
) -> tuple[Dataset, dict[int, Example]]:
    """Read a file as tokens, and its examples by the numbers of their lines: at least one."""
    examples = read_examples(path)
    whole = path.suffix not in (".jsonl", ".json")
    found = (
        pieces(tokenizer, examples[0].completion, length)
        if whole
        else tokenize(tokenizer, examples, length, truncate)
    )
    if not found.examples:
        facts = "; ".join(found.remarks(path, length))
        raise FinetuneError(
            f"{path} leaves no example ({facts}); give texts, completions or answers of at least "
            f"two and at most --max-length {length} tokens"
        )
    return found, {} if whole else {example.line: example for example in examples}


def _parted(
    examples: Sequence[Tokens], share: float, seed: int
) -> tuple[list[Tokens], list[Tokens]]:
    """Hold a share of the examples out, drawn by the seed: at least one, where there are two."""
    count = min(max(round(share * len(examples)), 1), len(examples) - 1)
    drawn = np.random.default_rng(seed).permutation(len(examples))
    held = set(drawn[:count].tolist()) if count > 0 else set()
    return (
        [example for place, example in enumerate(examples) if place not in held],
        [example for place, example in enumerate(examples) if place in held],
    )


def _questions(
    tokenizer: Any,
    prompts: Sequence[str],
    judging: Sequence[Tokens],
    examples: Mapping[int, Example],
) -> list[list[int]]:
    """Return the evaluation prompts: the user's, or questions from held-out texts."""
    if prompts:
        asked = [_asked(tokenizer, prompt) for prompt in prompts]
        return [question_ids(tokenizer, question) for question in asked]
    found = []
    for tokens in judging[:QUESTIONS]:
        question = examples[tokens.line].question if tokens.line in examples else None
        if question is None or not (question.messages or question.prompt):
            found.append(list(tokens.ids[:_BEGINNING]))
        else:
            found.append(question_ids(tokenizer, question))
    return found


def _asked(tokenizer: Any, prompt: str) -> Example:
    """Take a prompt as a chat's first turn where the tokenizer has a template, else as it is."""
    try:
        prompt.encode()
    except UnicodeEncodeError as error:  # bytes of a command line that are no text
        raise FinetuneError(f"--prompt {prompt!r} is no text in UTF-8: {error}; mend it") from error
    if getattr(tokenizer, "chat_template", None):
        return Example(0, [{"role": "user", "content": prompt}])
    return Example(0, prompt=prompt)
