"""Text data sets as tasks: SST-2, CoLA, CLINC150 and BANKING77, with MiniLM's WordPiece.

Test sentences: SST-2's test part; CoLA's two development parts, as its test labels are not public;
CLINC150's test part, without out-of-scope sentences; BANKING77's test part.
"""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from pockengine.errors import FinetuneError
from pockengine.finetune.task import Examples, Task, split
from pockengine.studies.sparse.pictures import stratified
from pockengine.studies.sparse.sizes import Sizes


@dataclass(frozen=True)
class Text:
    """Labeled sentences: the training part and the test part, each [(sentence, label), ...]."""

    classes: int
    train: list[tuple[str, int]]
    test: list[tuple[str, int]]


def sentence_task(root: Path, name: str, tokenizer: Path, length: int, sizes: Sizes) -> Task:
    """Return a data set of READERS: inputs `input_ids` i64 [N, length], 0 where padded.

    FinetuneError names a missing or damaged file.
    """
    text = _read(root, name)
    words = load_tokenizer(tokenizer, length)
    tuning = _examples(words, text.train, sizes.train + sizes.validation, sizes.seed)
    test = _examples(words, text.test, sizes.test, sizes.seed)
    return Task(name, text.classes, split(tuning, sizes.validation, sizes.seed), test)


def more_sentences(root: Path, name: str, tokenizer: Path, length: int, sizes: Sizes) -> Examples:
    """Return `sizes.more` further sentences of the training file, or as many as there are."""
    words, taken = load_tokenizer(tokenizer, length), sizes.train + sizes.validation
    both = _examples(words, _read(root, name).train, taken + sizes.more, sizes.seed)
    return both.take(np.arange(taken, len(both)))


def load_tokenizer(folder: Path, length: int) -> Tokenizer:
    """Load `tokenizer.json`; sentences are truncated or padded to `length` tokens."""
    path = folder / "tokenizer.json"
    try:
        words: Tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # tokenizers raises no specific exception
        raise FinetuneError(f"{path} is no tokenizer: {error}") from error
    words.enable_truncation(length)
    words.enable_padding(length=length)
    return words


def _examples(words: Tokenizer, rows: list[tuple[str, int]], count: int, seed: int) -> Examples:
    labels = np.array([label for _, label in rows], np.int64)
    index = stratified(labels, min(count, len(rows)), seed)
    encoded = words.encode_batch([rows[i][0] for i in index])
    ids = np.array([one.ids for one in encoded], np.int64)
    return Examples({"input_ids": ids}, labels[index])


def _read(root: Path, name: str) -> Text:
    try:
        return READERS[name](root / "text" / name)
    except (OSError, ValueError, KeyError, IndexError, UnicodeDecodeError) as error:
        raise FinetuneError(f"{root / 'text' / name} cannot be read: {error}") from error


def _sst2(folder: Path) -> Text:
    return Text(2, *(_table(folder / file, 0, 1) for file in ("train.tsv", "test.tsv")))


def _cola(folder: Path) -> Text:
    train = _table(folder / "in_domain_train.tsv", 3, 1)
    test = [_table(folder / f"{part}_dev.tsv", 3, 1) for part in ("in_domain", "out_of_domain")]
    return Text(2, train, test[0] + test[1])


def _clinc150(folder: Path) -> Text:
    parts = json.loads((folder / "data_full.json").read_text(encoding="utf-8"))
    intents = sorted({intent for _, intent in parts["train"]})
    place = {intent: index for index, intent in enumerate(intents)}
    train, test = ([(text, place[i]) for text, i in parts[part]] for part in ("train", "test"))
    return Text(len(intents), train, test)


def _banking77(folder: Path) -> Text:
    names = json.loads((folder / "categories.json").read_text(encoding="utf-8"))
    parts = []
    for file in ("train.csv", "test.csv"):
        with (folder / file).open(encoding="utf-8", newline="") as lines:
            rows = csv.DictReader(lines)
            parts.append([(row["text"], names.index(row["category"])) for row in rows])
    return Text(len(names), *parts)


def _table(path: Path, sentence: int, label: int) -> list[tuple[str, int]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row[sentence], int(row[label])) for row in rows]


READERS: dict[str, Callable[[Path], Text]] = {
    "sst2": _sst2,
    "cola": _cola,
    "clinc150": _clinc150,
    "banking77": _banking77,
}
