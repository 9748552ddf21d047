"""Convert texts to tokens with labels, and report what is skipped and why."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pockengine.errors import FinetuneError
from pockengine.finetune.lm.templates import Rendered, render, render_question
from pockengine.finetune.lm.texts import Example
from pockengine.finetune.task import IGNORED
from pockengine.models.tokenizer_form import panics_as_errors

TOKENIZER = "tokenizer.json"
_NAMED = 5


@dataclass(frozen=True)
class Tokens:
    """An example as the model's input; `labels` are the counted tokens, else IGNORED."""

    line: int
    ids: Sequence[int]
    labels: Sequence[int]

    @property
    def counted(self) -> int:
        """Tokens that count in the loss: not the first of a text, which has no predecessor."""
        return sum(label != IGNORED for label in self.labels[1:])


@dataclass(frozen=True)
class Dataset:
    """Tokenized examples, and the lines of skipped, truncated and partly learned ones."""

    examples: Sequence[Tokens]
    empty: Sequence[int]
    long: Sequence[int]
    cut: Sequence[int]
    rewritten: Sequence[int] = ()

    def remarks(self, path: Path, length: int) -> list[str]:
        """Report which lines of a file are skipped, by their numbers."""
        rows = (
            (self.empty, "hold nothing to learn, and are left out"),
            (self.long, f"are longer than {length} tokens, and are left out; --truncate cuts them"),
            (self.cut, f"are longer than {length} tokens, and were cut"),
            (
                self.rewritten,
                "have answers that the template changes once later turns follow; these are not "
                "learned: give lines that end with them",
            ),
        )
        return [
            f"{path}: {len(lines)} examples {fact}: line {named(lines)}"
            for lines, fact in rows
            if lines
        ]


def named(lines: Sequence[int]) -> str:
    """Format line numbers: the first few, and how many more."""
    shown = ", ".join(map(str, lines[:_NAMED]))
    return shown + (f" and {len(lines) - _NAMED} more" if len(lines) > _NAMED else "")


def open_tokenizer(folder: Path, vocabulary: int) -> Any:
    """Open a folder's tokenizer; FinetuneError if it is missing, or belongs to another model."""
    import transformers

    if not (folder / TOKENIZER).is_file():
        raise FinetuneError(
            f"{folder} has no {TOKENIZER}; copy it there from where the model is from, or save it "
            "by tokenizer.save_pretrained"
        )
    try:
        with panics_as_errors():
            tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
            highest = max(tokenizer.get_vocab().values())
            tokenizer("a")  # fails if its special tokens do
    except Exception as error:  # tokenizers raises plain exceptions
        raise FinetuneError(
            f"{folder / TOKENIZER} cannot be read: {error}; copy it again"
        ) from error
    if highest >= vocabulary:
        raise FinetuneError(
            f"{folder / TOKENIZER} has tokens up to {highest}, and the model knows {vocabulary}; "
            "give the tokenizer that the model was trained with"
        )
    return tokenizer


def tokenize(
    tokenizer: Any, examples: Iterable[Example], length: int, truncate: bool = False
) -> Dataset:
    """Tokenize examples; over-long ones are skipped, or truncated at the end."""
    tokenized: list[Tokens] = []
    empty: list[int] = []
    long: list[int] = []
    cut: list[int] = []
    rewritten: list[int] = []
    for example in examples:
        rendered = None if example.is_empty else render(tokenizer, example)
        tokens = None if rendered is None else _tokens(tokenizer, example.line, rendered)
        if tokens is not None and len(tokens.ids) > length:
            (cut if truncate else long).append(example.line)
            if not truncate:
                continue
            tokens = Tokens(tokens.line, tokens.ids[:length], tokens.labels[:length])
        if rendered is not None and rendered.rewritten:
            rewritten.append(example.line)
        if tokens is None or not tokens.counted:
            empty.append(example.line)
        else:
            tokenized.append(tokens)
    return Dataset(tokenized, empty, long, cut, rewritten=rewritten)


def pieces(tokenizer: Any, text: str, length: int) -> Dataset:
    """Cut one long text into pieces of this many tokens; a single last token is dropped."""
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    parts = [ids[at : at + length] for at in range(0, len(ids), length)]
    tokenized = [
        Tokens(number, part, part) for number, part in enumerate(parts, 1) if len(part) > 1
    ]
    return Dataset(tokenized, [] if tokenized else [1], [], [])


def question_ids(tokenizer: Any, question: Example) -> list[int]:
    """Return the tokens of a prompt; at least one."""
    rendered = render_question(tokenizer, question)
    ids, _ = _encoded(tokenizer, rendered)
    if not ids:
        begin = tokenizer.bos_token_id
        ids = [0 if begin is None else begin]
    return ids


def answer_text(tokenizer: Any, question: Sequence[int], answer: Sequence[int]) -> str:
    """Return an answer's text as a continuation of its question: alone it would lose a leading
    space.
    """
    before: str = tokenizer.decode(list(question))
    whole: str = tokenizer.decode([*question, *answer])
    return whole[len(before) :] if whole.startswith(before) else tokenizer.decode(list(answer))


def _tokens(tokenizer: Any, line: int, rendered: Rendered) -> Tokens:
    ids, spans = _encoded(tokenizer, rendered)
    labels = [
        token
        if any(begin <= span[0] < span[1] <= end for begin, end in rendered.learned)
        else IGNORED
        for token, span in zip(ids, spans, strict=True)
    ]
    end = tokenizer.eos_token_id
    if rendered.ends and rendered.learned and end is not None:
        added = ids[-1:] == [end]  # by the tokenizer itself, outside the text
        ids, labels = (ids, labels[:-1]) if added else ([*ids, end], labels)
        labels = [*labels, end]
    return Tokens(line, ids, labels)


def _encoded(tokenizer: Any, rendered: Rendered) -> tuple[list[int], list[tuple[int, int]]]:
    """Return tokens, and the span of the text for each; special tokens have none.

    A text from a template already has its special tokens. Tokens of spaces alone, whose spans
    `trim_offsets` empties, begin where the token before them ends.
    """
    encoded = tokenizer(
        rendered.text,
        add_special_tokens=not rendered.marked,
        return_offsets_mapping=True,
        verbose=False,
    )
    ids = list(encoded["input_ids"])
    spans, last = list[tuple[int, int]](), 0
    for begin, end in encoded["offset_mapping"]:
        spans.append((min(begin, last) if begin == end else begin, end))
        last = max(last, end)
    if not rendered.ends and not rendered.marked and ids[-1:] == [tokenizer.eos_token_id]:
        ids, spans = ids[:-1], spans[:-1]  # an end token that the tokenizer adds by itself
    return ids, spans
