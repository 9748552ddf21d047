"""Prepare a model and its texts: rows to train on, rows to evaluate, questions to answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.compiler.ir import Graph
from pockengine.errors import FinetuneError
from pockengine.finetune.lm.next_token import predict_one_token
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
"""Number of held-out examples that are answered before and after."""
_BEGINNING = 16
"""Number of leading tokens that replace the question of a text without one."""


@dataclass(frozen=True)
class Parts:
    """Tokenized texts for training and evaluation; `examples` are by their lines."""

    training: Sequence[Tokens]
    judging: Sequence[Tokens]
    examples: Mapping[int, Example]
    remarks: Sequence[str]


@dataclass(frozen=True)
class FineTuneInputs:
    """Inputs of a fine-tuning: model and texts."""

    model: CausalLM
    tokenizer: Any
    graph: Graph
    training: Packed
    held_out: Packed | None
    questions: Sequence[Sequence[int]]
    remarks: Sequence[str]


def prepare(settings: Settings, prompts: Sequence[str] = ()) -> FineTuneInputs:
    """Read model and texts; FinetuneError or ImportModelError for a mismatch.

    `prompts` replace the questions of held-out examples.
    """
    model = open_decoder(settings.model, settings.course.length)
    course, texts = settings.course, settings.texts
    tokenizer = open_tokenizer(settings.model, model.vocabulary)
    parts = read_parts(tokenizer, texts, course.length, course.seed)
    judging = parts.judging
    graph = model.graph(course.batch, course.length)
    predict_one_token(graph, course.batch, course.length)
    return FineTuneInputs(
        model,
        tokenizer,
        graph,
        pack(parts.training, course.length, texts.together),
        pack(judging, course.length, texts.together) if judging else None,
        _questions(tokenizer, prompts, judging, parts.examples),
        parts.remarks,
    )


def open_decoder(folder: Path, length: int) -> CausalLM:
    """Open a decoder; FinetuneError if it does not support this many positions."""
    model = open_causal_lm(folder)
    if model.longest is not None and length > model.longest:
        raise FinetuneError(
            f"--max-length {length} is beyond the {model.longest} tokens that {folder} knows "
            "positions of; give at most these"
        )
    return model


def read_parts(tokenizer: Any, texts: Texts, length: int, seed: int) -> Parts:
    """Read training and evaluation texts; FinetuneError for a mismatch."""
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
    """Read a file as tokens, and its examples by line number; at least one."""
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
    """Hold out a share of the examples, drawn by the seed: at least one, if there are two."""
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
    """Wrap a prompt as a chat's first turn if the tokenizer has a template."""
    try:
        prompt.encode()
    except UnicodeEncodeError as error:  # bytes on the command line that are not text
        raise FinetuneError(f"--prompt {prompt!r} is no text in UTF-8: {error}; mend it") from error
    if getattr(tokenizer, "chat_template", None):
        return Example(0, [{"role": "user", "content": prompt}])
    return Example(0, prompt=prompt)
