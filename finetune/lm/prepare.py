"""Prepare a model and its texts: rows to train on, rows to evaluate, questions to answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from pockengine.backends.registry import backend_for
from pockengine.compiler.ir import Graph
from pockengine.devices import find_device
from pockengine.errors import FinetuneError, ImportModelError
from pockengine.finetune.lm.losses import DRAWN, PAIRS, RATED, TAUGHT
from pockengine.finetune.lm.methods import TEXTS, set_loss
from pockengine.finetune.lm.next_token import predict_one_token
from pockengine.finetune.lm.packing import LOGITS, Packed, pack
from pockengine.finetune.lm.pairs import PairTokens, pack_pairs, tokenize_pairs
from pockengine.finetune.lm.rated import RatedTokens, pack_rated, tokenize_rated
from pockengine.finetune.lm.rollouts import (
    Prompt,
    Prompts,
    open_prompts,
    prompt_rows,
    tokenize_prompts,
)
from pockengine.finetune.lm.settings import Settings, Texts
from pockengine.finetune.lm.teacher import Teacher
from pockengine.finetune.lm.texts import (
    Example,
    is_plain,
    read_examples,
    read_pairs,
    read_prompts,
    read_rated,
)
from pockengine.finetune.lm.tokens import (
    Tokens,
    open_tokenizer,
    pieces,
    question_ids,
    tokenize,
)
from pockengine.models.causal_lm import CausalLM, open_causal_lm
from pockengine.models.decoders import check_length
from pockengine.models.decoding import decoding_graphs

QUESTIONS = 3
"""Number of held-out examples that are answered before and after training."""
_BEGINNING = 16
"""Number of leading tokens that replace the question of a text without one."""


class Tokenized(Protocol):
    """An example as tokens, or a pair of answers."""

    @property
    def line(self) -> int:
        """Its line in the file."""

    @property
    def ids(self) -> Sequence[int]:
        """Its tokens."""


T = TypeVar("T", bound=Tokenized)


@dataclass(frozen=True)
class FileExamples(Generic[T]):
    """Examples of a file; `questions` are their prompts by line, `remarks` the skipped ones."""

    tokenized: Sequence[T]
    questions: Mapping[int, Example]
    remarks: Sequence[str]


@dataclass(frozen=True)
class Parts(Generic[T]):
    """Examples for training and for evaluation, with the prompts of the evaluation file."""

    training: Sequence[T]
    judging: Sequence[T]
    questions: Mapping[int, Example]
    remarks: Sequence[str]


@dataclass(frozen=True)
class FineTuneInputs:
    """Inputs of a fine-tuning: model and texts; `entries` generate text with a cache.

    `prompts` are those of a method that samples answers.
    """

    model: CausalLM
    tokenizer: Any
    graph: Graph
    training: Packed
    held_out: Packed | None
    questions: Sequence[Sequence[int]]
    remarks: Sequence[str]
    entries: Mapping[str, Graph] = field(default_factory=dict)
    prompts: Prompts | None = None


def prepare(settings: Settings, prompts: Sequence[str] = ()) -> FineTuneInputs:
    """Read model and texts; FinetuneError or ImportModelError for a mismatch.

    `prompts` replace the questions of held-out examples.
    """
    course = settings.course
    model = open_decoder(settings.model, course.length)
    tokenizer = open_tokenizer(settings.model, model.vocabulary)
    # A trace of the model takes seconds to minutes: mistakes in texts and options are found first.
    settings, remarks = _apart(model, settings)
    training, held_out, parts = _ROWS[course.method.form](tokenizer, settings)
    questions, drawn = _questions(tokenizer, prompts, parts), _prompts(settings, parts)
    graph = model.graph(course.batch, course.length)
    set_loss(graph, course.method)
    entries = _decoding(model, graph, settings)
    if entries:
        del graph.outputs[LOGITS]
    else:
        predict_one_token(graph, course.batch, course.length)
    return FineTuneInputs(
        model,
        tokenizer,
        graph,
        training=training,
        held_out=held_out,
        questions=questions,
        remarks=[*remarks, *parts.remarks],
        entries=entries,
        prompts=drawn,
    )


def _apart(model: CausalLM, settings: Settings) -> tuple[Settings, list[str]]:
    """Give each text its own row if the model would mix those of a row, and report it.

    FinetuneError for a method that puts several answers into a row.
    """
    method, texts = settings.course.method, settings.texts
    if model.separates_texts:
        return settings, []
    fact = f"{type(model.module).__name__} mixes the texts of a row"
    if method.form == PAIRS or method.refers:
        raise FinetuneError(
            f"--method {method.name} has two answers in a row, and {fact}; use another method"
        )
    if method.form != TEXTS or not texts.together:
        return settings, []
    apart = replace(settings, texts=replace(texts, together=False))
    return apart, [f"{fact}: each text has a row of its own (as with --no-pack)"]


Rows = tuple[Packed, Packed | None, Parts[Any]]
"""Rows to train on, rows to evaluate, and the examples in them."""


def _text_rows(tokenizer: Any, settings: Settings) -> Rows:
    course, texts = settings.course, settings.texts
    parts = read_parts(tokenizer, texts, course.length, course.seed)
    learned = pack(parts.training, course.length, texts.together)
    judged = pack(parts.judging, course.length, texts.together) if parts.judging else None
    return learned, judged, parts


def _check_whole(settings: Settings) -> None:
    if settings.texts.truncate:
        raise FinetuneError(
            f"--truncate cuts texts, and --method {settings.course.method.name} compares whole "
            "answers; leave it out"
        )


def _pair_rows(tokenizer: Any, settings: Settings) -> Rows:
    course, texts = settings.course, settings.texts
    _check_whole(settings)

    def read(path: Path) -> FileExamples[PairTokens]:
        pairs = read_pairs(path)
        found, remarks = tokenize_pairs(tokenizer, pairs, path, course.length)
        return FileExamples(found, {pair.chosen.line: pair.chosen for pair in pairs}, remarks)

    parts = _parts(read, texts, course.seed)
    learned = pack_pairs(parts.training, course.length, course.method)
    judging = parts.judging
    judged = pack_pairs(judging, course.length, course.method) if judging else None
    return learned, judged, parts


def _rated_rows(tokenizer: Any, settings: Settings) -> Rows:
    course, texts = settings.course, settings.texts
    method = course.method
    _check_whole(settings)
    if method.refers and course.batch < 2:
        raise FinetuneError(
            f"--method {method.name} compares the answers of a batch, and --batch is "
            f"{course.batch}; give at least 2"
        )
    room = course.length // 2 if method.refers else course.length

    def read(path: Path) -> FileExamples[RatedTokens]:
        rated = read_rated(path, "label" if method.refers else "reward")
        found, remarks = tokenize_rated(tokenizer, rated, path, room)
        return FileExamples(found, {each.example.line: each.example for each in rated}, remarks)

    parts = _parts(read, texts, course.seed)
    learned, judged = (
        pack_rated(part, course.length, method, course.batch) if part else None
        for part in (parts.training, parts.judging)
    )
    assert learned is not None
    return learned, judged, parts


def _taught_rows(tokenizer: Any, settings: Settings) -> Rows:
    course = settings.course
    assert course.method.teacher is not None
    if settings.texts.validation is not None:
        raise FinetuneError(
            "--teacher has logits of the lines of --data, and --validation has other lines; leave "
            "it out, and --hold-out evaluates a part of --data"
        )
    teacher = Teacher(course.method.teacher)
    parts = read_parts(tokenizer, settings.texts, course.length, course.seed)
    learned = teacher.pack(parts.training, course.length)
    return learned, teacher.pack(parts.judging, course.length) if parts.judging else None, parts


def _prompt_rows(tokenizer: Any, settings: Settings) -> Rows:
    course, drawing = settings.course, settings.course.method.drawing
    assert drawing is not None
    _check_whole(settings)
    if course.batch % drawing.group:
        raise FinetuneError(
            f"--batch is {course.batch}, and --method {course.method.name} draws {drawing.group} "
            "answers to each prompt; give a --batch that --group divides"
        )

    def read(path: Path) -> FileExamples[Prompt]:
        prompts = read_prompts(path)
        room = course.length - drawing.tokens
        found, remarks = tokenize_prompts(tokenizer, prompts, path, room)
        return FileExamples(found, {each.example.line: each.example for each in prompts}, remarks)

    parts = _parts(read, settings.texts, course.seed)
    needed = course.batch // drawing.group
    if len(parts.training) < needed:
        raise FinetuneError(
            f"{settings.texts.data} leaves {len(parts.training)} prompts to train on, and a step "
            f"takes {needed}; give more prompts, or a smaller --batch"
        )
    return prompt_rows(parts.training, course.length), None, parts


def _prompts(settings: Settings, parts: Parts[Any]) -> Prompts | None:
    drawing = settings.course.method.drawing
    return None if drawing is None else open_prompts(parts.training, parts.judging, drawing)


_ROWS = {
    TEXTS: _text_rows,
    PAIRS: _pair_rows,
    RATED: _rated_rows,
    TAUGHT: _taught_rows,
    DRAWN: _prompt_rows,
}


def _decoding(model: CausalLM, graph: Graph, settings: Settings) -> Mapping[str, Graph]:
    """Return the entries that generate with a cache; none if model or target do not support it.

    Answers then take a forward pass of whole rows per token.
    """
    options = settings.options
    if not backend_for(find_device(options.device), options).target().takes("cache_update"):
        return {}
    try:
        return decoding_graphs(model.module, settings.course.length, graph)
    except ImportModelError:
        return {}


def open_decoder(folder: Path, length: int) -> CausalLM:
    """Open a decoder; ImportModelError if it does not support this many positions."""
    model = open_causal_lm(folder)
    check_length(folder, model.module, length)
    return model


def read_parts(tokenizer: Any, texts: Texts, length: int, seed: int) -> Parts[Tokens]:
    """Read training and evaluation texts; FinetuneError for a mismatch."""
    return _parts(lambda path: _read(tokenizer, path, length, texts.truncate), texts, seed)


def _parts(read: Callable[[Path], FileExamples[T]], texts: Texts, seed: int) -> Parts[T]:
    found = read(texts.data)
    if texts.validation is not None:
        judged = read(texts.validation)
        remarks = [*found.remarks, *judged.remarks]
        return Parts(found.tokenized, judged.tokenized, judged.questions, remarks)
    if not texts.hold_out:
        return Parts(found.tokenized, (), found.questions, found.remarks)
    learned, held_out = _parted(found.tokenized, texts.hold_out, seed)
    return Parts(learned, held_out, found.questions, found.remarks)


def _read(tokenizer: Any, path: Path, length: int, truncate: bool) -> FileExamples[Tokens]:
    """Read a file of texts; FinetuneError if it leaves none."""
    examples = read_examples(path)
    whole = is_plain(path)
    found = (
        pieces(tokenizer, examples[0].completion, length)
        if whole
        else tokenize(tokenizer, examples, length, truncate)
    )
    remarks = found.remarks(path, length)
    if not found.examples:
        raise FinetuneError(
            f"{path} leaves no example ({'; '.join(remarks)}); give texts, completions or answers "
            f"of at least two and at most --max-length {length} tokens"
        )
    questions = {} if whole else {example.line: example for example in examples}
    return FileExamples(found.examples, questions, remarks)


def _parted(examples: Sequence[T], share: float, seed: int) -> tuple[list[T], list[T]]:
    """Hold out a random share of the examples: at least one if there are two."""
    count = min(max(round(share * len(examples)), 1), len(examples) - 1)
    drawn = np.random.default_rng(seed).permutation(len(examples))
    reserved = set(drawn[:count].tolist()) if count > 0 else set()
    return (
        [example for place, example in enumerate(examples) if place not in reserved],
        [example for place, example in enumerate(examples) if place in reserved],
    )


def _questions(tokenizer: Any, prompts: Sequence[str], parts: Parts[T]) -> list[list[int]]:
    """Return the evaluation prompts: the user's, or questions from held-out texts."""
    if prompts:
        examples = [_as_question(tokenizer, prompt) for prompt in prompts]
        return [question_ids(tokenizer, question) for question in examples]
    found = []
    for tokens in parts.judging[:QUESTIONS]:
        example = parts.questions.get(tokens.line)
        question = None if example is None else example.question
        if question is None or not (question.messages or question.prompt):
            found.append(list(tokens.ids[:_BEGINNING]))
        else:
            found.append(question_ids(tokenizer, question))
    return found


def _as_question(tokenizer: Any, prompt: str) -> Example:
    """Wrap a prompt as a chat's first turn if the tokenizer has a template."""
    try:
        prompt.encode()
    except UnicodeEncodeError as error:  # bytes on the command line that are not text
        raise FinetuneError(f"--prompt {prompt!r} is no text in UTF-8: {error}; mend it") from error
    if getattr(tokenizer, "chat_template", None):
        return Example(0, [{"role": "user", "content": prompt}])
    return Example(0, prompt=prompt)
