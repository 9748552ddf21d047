"""How a tokenizer.json processes a text, as flags of the C runtime (pe_tokenizer_table.h)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pockengine.errors import ImportModelError
from pockengine.models.split_patterns import GPT2, Group, covers, digits, parse

BYTES, FALLBACK, FUSE, WHOLE, NFC, MARK = 1, 2, 4, 8, 16, 32
PREPEND, FIRST, STRIP, TRIMMED, UNLESS, AT_MARKS, STRIP_ALL = 64, 128, 256, 512, 1024, 2048, 4096
"""Flags of a table."""
_SPACE = "\u2581"


@dataclass
class Form:
    """Flags of a table, and the patterns that split a text, each the pieces of the one before."""

    flags: int = 0
    patterns: list[Group] = field(default_factory=list)


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
    for part in _parts(facts.get("decoder"), "decoders"):
        if part["type"] == "Strip" and part["start"] == 1:
            form.flags |= STRIP
        if part["type"] == "Metaspace" and part["prepend_scheme"] != "never":
            form.flags |= STRIP_ALL
    for part in _parts(facts.get("post_processor"), "processors"):
        form.flags |= TRIMMED if part.get("trim_offsets") else 0
    if form.flags & MARK and form.flags & (BYTES | NFC):
        raise _unknown("marks of spaces together with bytes or NFC")
    for row in facts["added_tokens"]:
        if row["single_word"] or (row["normalized"] and form.flags & MARK):
            raise _unknown(
                f"that the added token {row['content']!r} is a single word or normalized"
            )
    return form


def _unknown(what: str) -> ImportModelError:
    return ImportModelError(
        f"the tokenizer has {what}, which the C runtime does not know; it has byte-level BPE with "
        "NFC, Digits and isolated patterns, and BPE of SentencePiece"
    )


def _parts(part: Mapping[str, Any] | None, name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the parts of a sequence, or a single part."""
    if part is not None and part["type"] == "Sequence":
        for inner in part[name]:
            yield from _parts(inner, name)
    elif part is not None:
        yield part


def _read_model(form: Form, model: Mapping[str, Any]) -> None:
    if model.get("type") != "BPE":
        raise _unknown(f"a model {model.get('type')}")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise _unknown(f"{name} {model[name]!r}")
    flags = {"byte_fallback": FALLBACK, "fuse_unk": FUSE, "ignore_merges": WHOLE}
    form.flags |= sum(flag for name, flag in flags.items() if model.get(name))


def _read_normalizer(form: Form, part: Mapping[str, Any]) -> None:
    if part["type"] == "NFC":
        form.flags |= NFC
    elif part["type"] == "Prepend" and part["prepend"] == _SPACE:
        form.flags |= PREPEND
    elif _replaces_spaces(part):
        form.flags |= MARK
    else:
        raise _unknown(f"a normalizer {part['type']}")


def _replaces_spaces(part: Mapping[str, Any]) -> bool:
    replacement = (part["type"], part.get("pattern"), part.get("content"))
    return replacement == ("Replace", {"String": " "}, _SPACE)


def _read_pre_tokenizer(form: Form, part: Mapping[str, Any]) -> None:
    kind = part["type"]
    if form.flags & (BYTES | AT_MARKS):
        raise _unknown(f"a pre-tokenizer {kind} after ByteLevel or Metaspace")
    if kind == "ByteLevel" and not part["add_prefix_space"]:
        form.flags |= BYTES
        if part.get("use_regex", True):
            form.patterns.append(parse(GPT2))
    elif kind == "Digits":
        form.patterns.append(digits(part["individual_digits"]))
    elif kind == "Metaspace" and part["replacement"] == _SPACE and not form.patterns:
        scheme = {"always": PREPEND | UNLESS, "first": PREPEND | FIRST | UNLESS, "never": 0}
        form.flags |= MARK | scheme[part["prepend_scheme"]]
        form.flags |= AT_MARKS if part.get("split", True) else 0
    elif kind == "Split" and "Regex" in part["pattern"]:
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
