"""Convert a tokenizer.json to the C runtime's table, read in place (pe_tokenizer_table.h)."""

import json
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Any

import numpy as np
from tokenizers import Tokenizer, pre_tokenizers

from pockengine.errors import ImportModelError
from pockengine.models import unicode_table
from pockengine.models.split_patterns import Program
from pockengine.models.tokenizer_form import BYTES, NFC, UNIGRAM, Form, form_of, panics_as_errors
from pockengine.models.tokenizer_rules import Rules, growth, masks_of, rules_of
from pockengine.models.tries import NONE, forest

MAGIC, VERSION = 0x4B544550, 4
SPECIAL, BYTE, LEFT, RIGHT = 1, 2, 4, 8
"""Flags of a token."""
MOST_MARKS = 8
UNKNOWN_PENALTY = 10.0
"""How far the score of an unknown character is below that of every token of Unigram."""
_MASK = 0xFFFFFFFF
_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")


@dataclass(frozen=True)
class _Tokens:
    """Bytes and flags of each token, by its id."""

    texts: Sequence[bytes]
    flags: Sequence[int]


class ChatForm(IntFlag):
    """Flags of a chat template and its model, as in pe_tokenizer_table.h."""

    LEARNS = 1
    TURNS = 2
    SYSTEM = 4
    STRIPS_USER = 8
    STRIPS_ANSWER = 16
    STRIPS_SYSTEM = 32
    MIXES = 64
    THINKS = 128
    FORGETS = 256
    FORGETS_LINES = 512


NO_FORM = ChatForm(0)


@dataclass(frozen=True)
class Chat:
    """Literal texts around questions and answers, and the tokens that end an answer or a text.

    Without texts, a question is completed as it is. `opened` and `closed` are learned with an
    answer; `generation_prompt` follows a last question, and `earlier` precedes an answer that is
    not the last message.
    """

    ask: str = ""
    answer: str = ""
    ask_again: str = ""
    stops: Sequence[int] = ()
    system: str = ""
    instructed: str = ""
    opened: str = ""
    closed: str = ""
    generation_prompt: str = ""
    earlier: str = ""
    end: int | None = None
    form: ChatForm = NO_FORM


COMPLETION = Chat()


def tokenizer_table(tokenizer: Tokenizer, chat: Chat = COMPLETION) -> bytes:
    """Convert a tokenizer; ImportModelError names an unsupported feature."""
    facts = json.loads(tokenizer.to_str())
    form = form_of(facts)
    model, added = facts["model"], facts["added_tokens"]
    vocab = _vocabulary(model)
    tokens = _tokens(form, model["vocab"], added)
    known = {row["id"] for row in added}
    words = [n for word, n in vocab.items() if n not in known and not _is_byte(form, word)]
    begin, end = _marks(tokenizer)
    contents = [tokens.texts[row["id"]] for row in added]
    program, rules = rules_of(form)
    unigram = bool(form.flags & UNIGRAM)
    sections = [
        _u32(np.cumsum([0, *map(len, tokens.texts)])),
        b"".join(tokens.texts),
        bytes(tokens.flags),
        _u32(_byte_ids(form, vocab)),
        _hashed([] if unigram else _merges(model), 2, 4),
        _hashed_texts(tokens.texts, [] if unigram else words),
        _hashed_texts(tokens.texts, sorted(known)),
        _u32(sorted({len(text) for text in contents}, reverse=True)),
        _u32(begin),
        _u32(end),
        *_characters(form, program),
        *(text.encode() for text in (chat.ask, chat.answer, chat.ask_again)),
        _u32(chat.stops),
        *(text.encode() for text in (chat.system, chat.instructed)),
        *(text.encode() for text in (chat.opened, chat.closed, chat.generation_prompt)),
        _u32([] if chat.end is None else [chat.end]),
        chat.earlier.encode(),
        _scores(model, len(tokens.texts)) if unigram else b"",
        *_tries({word.encode(): n for word, n in vocab.items()} if unigram else {}, rules),
        _u32(np.ravel(rules.rows)),
        rules.contents,
    ]
    unknown = model["unk_id"] if unigram else vocab.get(model.get("unk_token"), NONE)
    longest = max(map(len, tokens.texts))
    numbers = [len(tokens.texts), form.flags, unknown, longest, int(chat.form), growth(form)]
    return _joined(sections, numbers)


def _vocabulary(model: Mapping[str, Any]) -> dict[str, int]:
    """Return the id of each token; that of Unigram has the last of equal ones."""
    if isinstance(model["vocab"], list):
        return {word: number for number, (word, _) in enumerate(model["vocab"])}
    return dict(model["vocab"])


def _scores(model: Mapping[str, Any], count: int) -> bytes:
    """Return the scores of Unigram's tokens, of added ones, and of an unknown character."""
    scores = [score for _, score in model["vocab"]]
    unknown = min(scores) - UNKNOWN_PENALTY
    return np.array([*scores, *[0.0] * (count - len(scores)), unknown], "<f8").tobytes()


def _tries(vocabulary: Mapping[bytes, int], rules: Rules) -> list[bytes]:
    """Return the sections of the tries: that of the vocabulary is first, or none."""
    trees = forest([trie for trie in (vocabulary, *rules.tries) if trie])
    return [_u32(trees.children), trees.labels.tobytes(), _u32(trees.values)]


def _joined(sections: Sequence[bytes], facts: Sequence[int]) -> bytes:
    """Return the head and the sections, each aligned to 4 bytes."""
    chat = (1, 1, 1, 4, 1, 1, 1, 1, 1, 4, 1)
    sizes = (4, 1, 1, *(4,) * 7, 2, 1, 1, *(4,) * 5, *chat, 4, 4, 1, 4, 4, 1)
    at = 4 * (4 + len(facts) + 2 * len(sections))
    places, parts = [], []
    for section, size in zip(sections, sizes, strict=True):
        places += [at, len(section) // size]
        parts.append(section + bytes(-len(section) % 4))
        at += len(parts[-1])
    body = _u32([*facts, *places]) + b"".join(parts)
    return struct.pack("<4I", MAGIC, VERSION, at, zlib.crc32(body)) + body


def _u32(numbers: Iterable[int]) -> bytes:
    return np.asarray(list(numbers), "<u4").tobytes()


def _is_byte(form: Form, word: str) -> bool:
    """Whether a SentencePiece token stands for one byte, such as <0x0A>."""
    return not form.flags & BYTES and form.decodes_bytes and bool(_BYTE.fullmatch(word))


def _tokens(form: Form, vocab: Any, added: Sequence[Mapping[str, Any]]) -> _Tokens:
    """Return the tokens of a vocabulary: words with their ids, or Unigram's list of rows."""
    words = vocab.items() if isinstance(vocab, dict) else [(w, n) for n, (w, _) in enumerate(vocab)]
    count = 1 + max([*(number for _, number in words), *(row["id"] for row in added)])
    texts, flags = [b""] * count, [0] * count
    letters = _byte_of_letter()
    for word, number in words:
        if _is_byte(form, word):
            texts[number], flags[number] = bytes([int(word[3:5], 16)]), BYTE
        elif form.flags & BYTES and all(letter in letters for letter in word):
            texts[number] = bytes(letters[letter] for letter in word)
        else:
            texts[number] = word.encode()
    for row in added:
        texts[row["id"]] = row["content"].encode()
        sides = LEFT * row["lstrip"] | RIGHT * row["rstrip"]
        flags[row["id"]] = SPECIAL * row["special"] | sides
    return _Tokens(texts, flags)


def _byte_of_letter() -> dict[str, int]:
    """Return the byte of each letter of byte-level vocabularies."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    letters |= {chr(256 + place): byte for place, byte in enumerate(others)}
    assert set(alphabet) == set(letters)
    return letters


def _byte_ids(form: Form, vocab: Mapping[str, int]) -> list[int]:
    """Return the token of each byte."""
    if form.flags & BYTES:
        by_byte = {byte: letter for letter, byte in _byte_of_letter().items()}
        return [vocab.get(by_byte[byte], NONE) for byte in range(256)]
    return [vocab.get(f"<0x{byte:02X}>", NONE) for byte in range(256)]


def _merges(model: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """Return left, right, rank and result of each merge; the last of equal pairs wins."""
    vocab, rows = model["vocab"], {}
    for rank, merge in enumerate(model["merges"]):
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        rows[vocab[left], vocab[right]] = rank, vocab[left + right]
    return [(*pair, *found) for pair, found in rows.items()]


def _marks(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the tokens added at the beginning and the end of a text."""
    try:
        with panics_as_errors():
            plain = tokenizer.encode("a", add_special_tokens=False).ids
            marked = tokenizer.encode("a", add_special_tokens=True).ids
    except Exception as error:  # tokenizers raises plain exceptions
        raise ImportModelError(
            f"the tokenizer cannot encode a text: {error}; copy tokenizer.json again"
        ) from error
    for at in range(len(marked) - len(plain) + 1):
        begin, end = marked[:at], marked[at + len(plain) :]
        if marked[at : at + len(plain)] == plain and len(begin) <= MOST_MARKS >= len(end):
            return begin, end
    raise ImportModelError(
        "the tokenizer's post-processor changes a text's own tokens; the runtime only adds some "
        "before and behind them"
    )


def _mixed(start: int, numbers: Iterable[int]) -> int:
    for number in numbers:
        start = ((start ^ number) * 0x85EBCA6B) & _MASK
        start ^= start >> 15
    return start


def _capacity(count: int) -> int:
    return max(4, 1 << (2 * count - 1).bit_length())


def _hashed(rows: Sequence[Sequence[int]], keys: int, width: int) -> bytes:
    """Return a hash table of rows by their first columns."""
    capacity = _capacity(len(rows))
    table = np.full((capacity, width), NONE, "<u4")
    used = bytearray(capacity)
    for row in rows:
        at = _mixed(0x9E3779B9, row[:keys]) & (capacity - 1)
        while used[at]:
            at = (at + 1) & (capacity - 1)
        used[at] = 1
        table[at] = row
    return table.tobytes()


def _hashed_texts(texts: Sequence[bytes], numbers: Sequence[int]) -> bytes:
    """Return a hash table of tokens by their bytes."""
    capacity = _capacity(len(numbers))
    table = np.full(capacity, NONE, "<u4")
    for number in numbers:
        at = _mixed(0x9E3779B9, texts[number]) & (capacity - 1)
        while table[at] != NONE:
            at = (at + 1) & (capacity - 1)
        table[at] = number
    return table.tobytes()


def _characters(form: Form, program: Program) -> list[bytes]:
    """Return the sections of characters and patterns; those of NFC are empty if it is not used."""
    normalizes = bool(form.flags & NFC)
    classes, sets = unicode_table.classes(masks_of(form, program))
    combining = unicode_table.combining() if normalizes else np.zeros_like(classes)
    numbers, parts = unicode_table.blocks(classes, combining)
    splits = unicode_table.decompositions() if normalizes else ()
    joins = unicode_table.compositions() if normalizes else ()
    return [
        numbers.astype("<u2").tobytes(),
        *(part.tobytes() for part in parts),
        _u32(sets),
        _u32(np.ravel(program.steps)),
        _u32(program.starts[: len(form.patterns)]),
        _hashed([(c, a, NONE if b is None else b) for c, a, b in splits], 1, 3),
        _hashed(list(joins), 2, 3),
    ]
