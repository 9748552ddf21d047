"""How a tokenizer.json processes a text, as flags of the C runtime (pe_tokenizer_table.h)."""

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pockengine.errors import ImportModelError
from pockengine.models.charsmaps import texts_of
from pockengine.models.split_patterns import GPT2, Group, Run, covers, digits, parse

BYTES, FALLBACK, FUSE, WHOLE, NFC, MARK = 1, 2, 4, 8, 16, 32
PREPEND, FIRST, STRIP, TRIMMED, UNLESS, AT_MARKS, STRIP_ALL = 64, 128, 256, 512, 1024, 2048, 4096
UNIGRAM, AT_SPACES = 8192, 16384
"""Flags of a table."""
LEFT_SIDE, RIGHT_SIDE = 1, 2
_SPACE = "\u2581"


@dataclass(frozen=True)
class MapClusters:
    """A charsmap: texts of grapheme clusters and characters."""

    texts: Mapping[bytes, bytes]


@dataclass(frozen=True)
class Replace:
    """Each match of a pattern becomes `content`."""

    pattern: Group
    content: str


@dataclass(frozen=True)
class CutSpaces:
    """Spaces at the ends of a text are removed, on the sides of LEFT_SIDE and RIGHT_SIDE."""

    sides: int


Rule = MapClusters | Replace | CutSpaces


@dataclass
class Form:
    """Flags of a table, rules that normalize a text, and patterns that split it.

    Each pattern splits the pieces of the one before.
    """

    flags: int = 0
    patterns: list[Group] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    decodes_bytes: bool = True
    """Whether tokens such as <0x0A> are decoded to a byte."""


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raise ValueError for a panic of tokenizers, which is no Exception in Python."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise ValueError(f"tokenizers fails: {error}") from error
        raise


def form_of(facts: Mapping[str, Any]) -> Form:
    """Return the flags of a tokenizer.json; ImportModelError names an unsupported feature."""
    form = Form()
    _read_model(form, facts["model"])
    for part in _parts(facts.get("normalizer"), "normalizers"):
        _read_normalizer(form, part)
    for part in _parts(facts.get("pre_tokenizer"), "pretokenizers"):
        _read_pre_tokenizer(form, part)
    _read_decoder(form, facts.get("decoder"))
    for part in _parts(facts.get("post_processor"), "processors"):
        form.flags |= TRIMMED if part.get("trim_offsets") else 0
    if form.flags & (MARK | PREPEND | UNIGRAM | AT_SPACES) and form.flags & (BYTES | NFC):
        raise _unknown("marks of spaces, words or Unigram together with bytes or NFC")
    normalizes = facts.get("normalizer") and (form.rules or form.flags & (MARK | PREPEND))
    for row in facts["added_tokens"]:
        if row["single_word"] or (row["normalized"] and normalizes):
            raise _unknown(
                f"that the added token {row['content']!r} is a single word or normalized"
            )
    return form


def _unknown(what: str) -> ImportModelError:
    return ImportModelError(
        f"the tokenizer has {what}, which the C runtime does not know; it has byte-level BPE with "
        "NFC, Digits and isolated patterns, and BPE and Unigram of SentencePiece with a "
        "precompiled charsmap, Replace and Strip"
    )


def _parts(part: Mapping[str, Any] | None, name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the parts of a sequence, or a single part."""
    if part is not None and part["type"] == "Sequence":
        for inner in part[name]:
            yield from _parts(inner, name)
    elif part is not None:
        yield part


def _read_model(form: Form, model: Mapping[str, Any]) -> None:
    kind = model.get("type")
    if kind not in ("BPE", "Unigram"):
        raise _unknown(f"a model {kind}")
    if kind == "Unigram" and model.get("unk_id") is None:
        raise _unknown("a model Unigram without unk_id")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise _unknown(f"{name} {model[name]!r}")
    form.flags |= UNIGRAM if kind == "Unigram" else 0
    flags = {"byte_fallback": FALLBACK, "fuse_unk": FUSE, "ignore_merges": WHOLE}
    form.flags |= sum(flag for name, flag in flags.items() if model.get(name))


def _read_normalizer(form: Form, part: Mapping[str, Any]) -> None:
    kind = part["type"]
    marks = _replaces_spaces(part) or (kind == "Prepend" and part["prepend"] == _SPACE)
    if form.flags & (MARK | PREPEND | NFC) and not marks:
        raise _unknown(f"a normalizer {kind} after NFC or U+2581 for spaces")
    if kind == "NFC" and not form.rules:
        form.flags |= NFC
    elif marks:
        form.flags |= MARK if kind == "Replace" else PREPEND
    elif kind == "Precompiled":
        texts = texts_of(base64.b64decode(part["precompiled_charsmap"]))
        form.rules += [MapClusters(texts)] if texts else []
    elif kind == "Replace":
        form.rules.append(Replace(_matched(part["pattern"]), part["content"]))
    elif kind == "Strip":
        sides = LEFT_SIDE * part["strip_left"] | RIGHT_SIDE * part["strip_right"]
        form.rules.append(CutSpaces(sides))
    else:
        raise _unknown(f"a normalizer {kind}")


def _matched(pattern: Mapping[str, str]) -> Group:
    """Return the pattern of Replace."""
    if "Regex" in pattern:
        return parse(pattern["Regex"])
    if not pattern["String"]:
        raise _unknown("a normalizer Replace of nothing")
    return Group((tuple(map(Run, pattern["String"])),))


def _replaces_spaces(part: Mapping[str, Any]) -> bool:
    replacement = (part["type"], part.get("pattern"), part.get("content"))
    return replacement == ("Replace", {"String": " "}, _SPACE)


def _read_decoder(form: Form, decoder: Mapping[str, Any] | None) -> None:
    kinds = set()
    for part in _parts(decoder, "decoders"):
        kinds.add(part["type"])
        if part["type"] == "Strip" and part["start"] == 1:
            form.flags |= STRIP
        if part["type"] == "Metaspace" and part["prepend_scheme"] != "never":
            form.flags |= STRIP_ALL
    form.decodes_bytes = not form.flags & UNIGRAM or "ByteFallback" in kinds
    if form.flags & UNIGRAM and form.flags & MARK and not kinds & {"Metaspace", "Replace"}:
        raise _unknown("Unigram with marks of spaces, and no decoder Metaspace or Replace")


def _read_pre_tokenizer(form: Form, part: Mapping[str, Any]) -> None:
    kind = part["type"]
    if form.flags & (BYTES | AT_MARKS):
        raise _unknown(f"a pre-tokenizer {kind} after ByteLevel or Metaspace")
    if kind == "ByteLevel" and not part["add_prefix_space"]:
        form.flags |= BYTES
        if part.get("use_regex", True):
            form.patterns.append(parse(GPT2))
    elif kind == "WhitespaceSplit" and not form.flags & (MARK | PREPEND) and not form.patterns:
        form.flags |= AT_SPACES
    elif kind == "Digits" and not form.flags & AT_SPACES:
        form.patterns.append(digits(part["individual_digits"]))
    elif kind == "Metaspace" and part["replacement"] == _SPACE and not form.patterns:
        if form.flags & PREPEND and part["prepend_scheme"] != "never":
            raise _unknown("Metaspace that prepends U+2581 after Prepend")
        scheme = {"always": PREPEND | UNLESS, "first": PREPEND | FIRST | UNLESS, "never": 0}
        form.flags |= MARK | scheme[part["prepend_scheme"]]
        form.flags |= AT_MARKS if part.get("split", True) else 0
    elif kind == "Split" and "Regex" in part["pattern"] and not form.flags & AT_SPACES:
        form.patterns.append(_split(part))
    elif kind != "Split" or part["pattern"] != {"String": " "} or not form.flags & MARK:
        space = " with add_prefix_space" if part.get("add_prefix_space") else ""
        raise _unknown(f"a pre-tokenizer {kind}{space} {part.get('pattern', '')}".rstrip())


def _split(part: Mapping[str, Any]) -> Group:
    pattern = parse(part["pattern"]["Regex"])
    behavior, inverted = part["behavior"], part["invert"]
    if (behavior, inverted) == ("Removed", True) and covers(pattern):
        return pattern  # nothing is removed
    if behavior != "Isolated":
        raise _unknown(f"a pattern that is {behavior}{' and inverted' if inverted else ''}")
    return pattern
