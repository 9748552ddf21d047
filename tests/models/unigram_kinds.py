"""Small tokenizers of SentencePiece's Unigram, with the normalizers of published ones."""

import json
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from pockengine.models.charsmaps import charsmap_of
from pockengine.tests.models.tokenizer_kinds import CODE, LANGUAGES, MARK

_WIDE = range(0xFF01, 0xFF5F)
_KATAKANA = range(0xFF66, 0xFFA0)
_LATIN = range(0xC0, 0x180)
_OTHERS = "\u00a8\u00aa\u00bd\u2122\u2167\u2460\u2026\u3000\u3131\u00a0\u0344\u0958\uac00\ufdfa"
_REMOVED = "\x01\x1e\u200b\ufeff\u0600"
UNKNOWN, BEGIN, END = "<unk>", "<s>", "</s>"


@cache
def charsmap() -> bytes:
    """Return a part of SentencePiece's NFKC: compositions, wide letters, and removed characters."""
    letters = [*map(chr, (*_WIDE, *_KATAKANA)), *_OTHERS]
    pairs = [unicodedata.normalize("NFD", chr(c)) for c in _LATIN]
    texts = {key: unicodedata.normalize("NFKC", key) for key in (*letters, *pairs)}
    texts |= dict.fromkeys(_REMOVED, "") | dict.fromkeys("\t\n\r", " ")
    changed = {key.encode(): text.encode() for key, text in texts.items() if key != text}
    return charsmap_of(changed)


def trained(tokenizer: Tokenizer, fallback: bool) -> Tokenizer:
    """Train a vocabulary on prose and code, and add special and ordinary tokens."""
    others = [f"<0x{byte:02X}>" for byte in range(256)] if fallback else []
    trainer = trainers.UnigramTrainer(
        vocab_size=800 + len(others),
        special_tokens=[UNKNOWN, BEGIN, END, *others],
        unk_token=UNKNOWN,
        show_progress=False,
    )
    tokenizer.train_from_iterator([LANGUAGES, *CODE.split("\n")], trainer)
    facts: dict[str, Any] = json.loads(tokenizer.to_str())
    facts["model"]["byte_fallback"] = fallback
    facts["added_tokens"] = [row for row in facts["added_tokens"] if row["content"] not in others]
    tokenizer = Tokenizer.from_str(json.dumps(facts))
    tokenizer.add_tokens([AddedToken("<m>", lstrip=True, rstrip=True, normalized=False)])
    return tokenizer


def of_words(
    scheme: str = "always",
    split: bool = True,
    alone: bool = True,
    rules: Sequence[normalizers.Normalizer] = (),
    fallback: bool = False,
) -> Tokenizer:
    """Return Unigram with `Metaspace`, of words `alone` or with their spaces."""
    tokenizer = Tokenizer(models.Unigram())
    if rules:
        tokenizer.normalizer = normalizers.Sequence(list(rules))
    marks = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    words: list[Any] = [pre_tokenizers.WhitespaceSplit()] if alone else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*words, marks])
    spaces = decoders.Metaspace(prepend_scheme=scheme, split=split)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), spaces]) if fallback else spaces
    return trained(tokenizer, fallback)


def of_llama() -> Tokenizer:
    """Return Unigram with the normalizer and decoder of LLaMA 2."""
    tokenizer = Tokenizer(models.Unigram())
    parts = [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]
    tokenizer.normalizer = normalizers.Sequence(parts)
    spaces = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*spaces, decoders.Strip(" ", 1, 0)])
    return trained(tokenizer, fallback=True)


def of_scores(rows: Sequence[tuple[str, float]], fallback: bool = False) -> Tokenizer:
    """Return Unigram of these tokens without normalizers; the first one is the unknown token."""
    tokenizer = Tokenizer(models.Unigram(list(rows), unk_id=0, byte_fallback=fallback))
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def _map() -> normalizers.Normalizer:
    return normalizers.Precompiled(charsmap())


def _quotes() -> list[normalizers.Normalizer]:
    return [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]


def _runs(content: str) -> normalizers.Normalizer:
    return normalizers.Replace(Regex(" {2,}"), content)


UNIGRAM_KINDS: dict[str, Callable[[], Tokenizer]] = {
    "t5": lambda: of_words(rules=[_map()]),
    "xglm": lambda: of_words(alone=False, rules=[_map(), _runs(" ")]),
    "spm": lambda: of_words(
        "first",
        split=False,
        alone=False,
        rules=[normalizers.Strip(left=False), _map(), _runs(MARK)],
        fallback=True,
    ),
    "quotes": lambda: of_words("never", alone=False, rules=[normalizers.Strip(), *_quotes()]),
    "stripped": lambda: of_words("first", alone=False, rules=[normalizers.Strip(), _map()]),
    "first word": lambda: of_words("first", rules=[_map()]),
    "words": partial(of_words, "never", split=False),
    "unigram llama": of_llama,
}
