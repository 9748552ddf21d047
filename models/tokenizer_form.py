"""How a tokenizer.json processes a text, as flags of the C runtime (pe_tokenizer_table.h)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pockengine.errors import ImportModelError

BYTES, FALLBACK, FUSE, WHOLE, NFC, MARK = 1, 2, 4, 8, 16, 32
PREPEND, FIRST, STRIP, DIGITS, UNLESS, AT_MARKS, STRIP_ALL = 64, 128, 256, 512, 1024, 2048, 4096
TRIMMED = 8192
"""Flags of a table."""
SPLIT, ANY_CASE, PREFIX, LINES, ONE_NUMBER, THREE, ACCENTS = 1, 2, 4, 8, 16, 32, 64
"""How a text is split into pieces."""
_SPACE = "\u2581"

_NEWER = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ACCENTED = (
    (_NEWER % r"\p{N}")
    .replace(r"?\p{L}+", r"?[\p{L}\p{M}]+")
    .replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
)
PATTERNS = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": SPLIT,
    _NEWER % r"\p{N}{1,3}": SPLIT | ANY_CASE | PREFIX | LINES | THREE,
    _NEWER % r"\p{N}": SPLIT | ANY_CASE | PREFIX | LINES | ONE_NUMBER,
    _ACCENTED: SPLIT | ANY_CASE | PREFIX | LINES | ONE_NUMBER | ACCENTS,
}
"""Patterns of GPT-2, LLaMA 3, Qwen and Qwen 3.5, which pe_tokenizer_split.c implements."""


@dataclass
class Form:
    """Flags of a table, and of its pieces."""

    flags: int = 0
    split: int = 0


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
        f"the tokenizer has {what}, which the C runtime does not know; it has byte-level BPE as of "
        "GPT-2, LLaMA 3 and Qwen, and BPE of SentencePiece"
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
    if kind == "ByteLevel" and not part["add_prefix_space"]:
        form.flags |= BYTES
        if part.get("use_regex", True):
            _set_split(form, next(iter(PATTERNS.values())))
    elif kind == "Digits" and part["individual_digits"] and not form.split:
        form.flags |= DIGITS
    elif kind == "Metaspace" and part["replacement"] == _SPACE:
        scheme = {"always": PREPEND | UNLESS, "first": PREPEND | FIRST | UNLESS, "never": 0}
        form.flags |= MARK | scheme[part["prepend_scheme"]]
        form.flags |= AT_MARKS if part.get("split", True) else 0
    elif kind == "Split" and (pattern := part["pattern"].get("Regex")) in PATTERNS:
        if part["behavior"] != "Isolated" or part["invert"]:
            raise _unknown(f"a pattern that is {part['behavior']}")
        _set_split(form, PATTERNS[pattern])
    elif kind != "Split" or part["pattern"] != {"String": " "} or not form.flags & MARK:
        raise _unknown(f"a pre-tokenizer {kind} {part.get('pattern', '')}")


def _set_split(form: Form, split: int) -> None:
    if form.split:
        raise _unknown("two patterns of pieces")
    form.split = split
