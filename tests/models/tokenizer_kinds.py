"""Small tokenizers of every kind that the C runtime supports, and texts in many scripts."""

import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers import pre_tokenizers as pre

from pockengine.tests.models.published_patterns import LLAMA3, O200K, PUBLISHED, QWEN, QWEN35

MARK = "\u2581"
LANGUAGES = (
    "Ünïcödé naïve café Straße. Привет, мир! Как дела? 你好,世界。今天天气很好 こんにちは世界 "
    "안녕하세요 세계 مرحبا بالعالم שלום עולם नमस्ते दुनिया สวัสดีชาวโลก 👩‍👩‍👧‍👦 🇩🇪 👍🏽 ½ ⅷ ٣٤٥ "
    "e\u0301 a\u030a\u0323 \u017f '\u017f it'S we'LL I'M don't   \n\n  \r\n\t x\u00a0y\u2028z "
    "12345 3.14159 1,000,000 \uff21\uff11 ① <s>"
)
CODE = Path(__file__).read_text(encoding="utf-8")
Mix = list[str]


def mixture() -> Mix:
    """Return prose in many scripts, code, and random characters."""
    drawn = random.Random(1)
    pools: list[Callable[[], str]] = [
        lambda: chr(drawn.randrange(32, 127)),
        lambda: drawn.choice(" \n\r\t\u00a0\u2003\u0085\u2028'"),
        lambda: chr(drawn.randrange(0x80, 0x800)),
        lambda: chr(drawn.randrange(0x300, 0x370)),  # combining marks
        lambda: chr(drawn.randrange(0x800, 0xD800)),
        lambda: chr(drawn.randrange(0x1F300, 0x1FAFF)),
        lambda: chr(drawn.randrange(0xE000, 0x110000)),
        lambda: drawn.choice(["'s", "'LL", "'\u017f", "가", "\u1100", "\u1161", "\u11a8", "123"]),
        lambda: drawn.choice(["\uff11", "\u2167", "  ", "<s>", "</s>", " <m> ", MARK]),
    ]
    fuzz = [
        "".join(drawn.choice(pools)() for _ in range(drawn.randrange(1, 40))) for _ in range(2500)
    ]
    return [LANGUAGES, CODE, *CODE.split("\n"), *fuzz, "", "a", " ", " a", "  a", "\n", "<s> a"]


def trained(tokenizer: Tokenizer, others: tuple[str, ...] = ()) -> Tokenizer:
    """Train merges on prose and code, and add special and ordinary tokens."""
    alphabet = pre.ByteLevel.alphabet() if not others else []
    trainer = trainers.BpeTrainer(
        vocab_size=1500 + len(others),
        special_tokens=["<unk>", "<s>", "</s>", *others],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator([LANGUAGES, *CODE.split("\n")], trainer)
    facts: dict[str, Any] = json.loads(tokenizer.to_str())
    facts["added_tokens"] = [
        row for row in facts["added_tokens"] if not row["content"].startswith("<0x")
    ]
    tokenizer = Tokenizer.from_str(json.dumps(facts))
    tokenizer.add_tokens([AddedToken("<m>", lstrip=True, rstrip=True, normalized=False)])
    return tokenizer


def of_bytes(patterns: Sequence[str] = (), digits: bool = False, **settings: Any) -> Tokenizer:
    """Return byte-level BPE with patterns, or GPT-2's by default."""
    tokenizer = Tokenizer(models.BPE(**settings))
    parts: list[Any] = [pre.Digits(individual_digits=True)] if digits else []
    parts += [pre.Split(Regex(pattern), "isolated") for pattern in patterns]
    parts.append(pre.ByteLevel(add_prefix_space=False, use_regex=not patterns))
    tokenizer.pre_tokenizer = pre.Sequence(parts)
    tokenizer.decoder = decoders.ByteLevel()
    if patterns in (QWEN, QWEN35):
        tokenizer.normalizer = normalizers.NFC()
    return trained(tokenizer)


def of_pieces(kind: str) -> Tokenizer:
    """Return SentencePiece BPE in the style of LLaMA 2, of Gemma, or with `Metaspace`."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    spaces = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(spaces)
    if kind == "llama2":
        replaced = normalizers.Replace(" ", MARK)
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), replaced])
        tokenizer.decoder = decoders.Sequence([*spaces, decoders.Strip(" ", 1, 0)])
    elif kind == "gemma":
        tokenizer.normalizer = normalizers.Replace(" ", MARK)
        tokenizer.pre_tokenizer = pre.Split(" ", "merged_with_previous")
    else:
        split = kind == "always"
        tokenizer.pre_tokenizer = pre.Metaspace(prepend_scheme=kind, split=split)
        marks = decoders.Metaspace(prepend_scheme=kind, split=split)
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), marks])
    return trained(tokenizer, tuple(f"<0x{byte:02X}>" for byte in range(256)))


def of_single_bytes() -> Tokenizer:
    """Return SentencePiece BPE without merges, the most tokens per byte: a mark has three."""
    vocabulary = {f"<0x{byte:02X}>": 1 + byte for byte in range(256)}
    model = models.BPE({"<unk>": 0, **vocabulary}, [], byte_fallback=True, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    parts = [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]
    tokenizer.normalizer = normalizers.Sequence(parts)
    spaces = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*spaces, decoders.Strip(" ", 1, 0)])
    tokenizer.add_tokens([AddedToken("|", normalized=False)])
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "gpt2": of_bytes,
    "llama3": lambda: of_bytes(LLAMA3, ignore_merges=True),
    "qwen": lambda: of_bytes(QWEN),
    "qwen3.5": lambda: of_bytes(QWEN35),
    "o200k": lambda: of_bytes(O200K, ignore_merges=True),
    "deepseek": lambda: of_bytes(PUBLISHED["DeepSeek V3"]),
    "smollm": lambda: of_bytes(digits=True),
    **{kind: partial(of_pieces, kind) for kind in ("llama2", "gemma", "first", "always")},
}
