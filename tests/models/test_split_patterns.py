"""The C runtime splits texts by the patterns of published tokenizers as `tokenizers` does."""

import itertools
import json
import os
import random
import struct
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models
from tokenizers import pre_tokenizers as pre

from pockengine.errors import ImportModelError
from pockengine.models.split_patterns import MOST_PATTERNS, Step, covers, parse
from pockengine.models.tokenizer_table import tokenizer_table
from pockengine.tests.models.published_patterns import LLAMA3, O200K, PUBLISHED, REFUSED
from pockengine.tests.models.tokenizer_kinds import KINDS, of_bytes
from pockengine.tests.models.tokenizer_program import build, tokenized

TRICKY = [
    *"aAzZ'sStTdDmMlLrReEvVſK 019/.,!|(\r\n\tʰ中あー々é½²٣ⅷ…\u0301\u00a0\u01c5",
    *("'ll", "'LL", "'re", "'Ve", "'\u017f", "  ", "\r\n", "🇩🇪"),
]
TEXTS = st.lists(
    st.lists(st.one_of(st.sampled_from(TRICKY), st.characters(codec="utf-8")), max_size=60).map(
        "".join
    ),
    min_size=20,
    max_size=60,
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("patterns"))


@cache
def of_pairs(patterns: Sequence[str], behavior: str = "isolated") -> Tokenizer:
    """Return BPE that merges a quarter of all pairs of bytes, so that tokens show the pieces."""
    letters = sorted(pre.ByteLevel.alphabet())
    pairs = [
        (a, b) for a, b in itertools.product(letters, letters) if (ord(a) * 7 + ord(b) * 13) % 4
    ]
    words = [*letters, *(a + b for a, b in pairs)]
    tokenizer = Tokenizer(models.BPE({word: n for n, word in enumerate(words)}, pairs))
    inverted = behavior == "removed"
    splits = [pre.Split(Regex(pattern), behavior, inverted) for pattern in patterns]
    tokenizer.pre_tokenizer = pre.Sequence(
        [*splits, pre.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    return tokenizer


@cache
def table_of(patterns: Sequence[str], behavior: str = "isolated") -> bytes:
    return tokenizer_table(of_pairs(patterns, behavior))


def check(program: Path, tokenizer: Tokenizer, table: bytes, texts: list[str]) -> None:
    expected = [row.ids for row in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    for text, ids, (tokens, _) in zip(
        texts, expected, tokenized(program, table, texts), strict=True
    ):
        assert tokens == ids, text[:1000]


@pytest.mark.parametrize("name", PUBLISHED)
def test_pieces_of_fuzzed_texts_match(name: str, program: Path) -> None:
    @settings(max_examples=12, deadline=None, database=None)
    @given(texts=TEXTS)
    def fuzzed(texts: list[str]) -> None:
        check(program, of_pairs(PUBLISHED[name]), table_of(PUBLISHED[name]), texts)

    fuzzed()


@pytest.mark.parametrize("name", ["o200k: GPT-4o, gpt-oss, Phi-4-mini, LLaMA 4", "DeepSeek V3"])
def test_every_character_is_in_its_sets(name: str, program: Path) -> None:
    places = [*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000)]
    places += [*range(0x40000, 0xE0000, 997), *range(0xF0000, 0x110000, 997), 0x10FFFF]
    texts = [
        "".join(f"{chr(c)}a{chr(c)}B{chr(c)} {chr(c)}" for c in places[at : at + 4096])
        for at in range(0, len(places), 4096)
    ]
    check(program, of_pairs(PUBLISHED[name]), table_of(PUBLISHED[name]), texts)


@pytest.mark.parametrize("kind", ["o200k", "deepseek", "smollm"])
def test_tokens_of_published_texts_match(kind: str, program: Path) -> None:
    folder = os.environ.get("POCKENGINE_DATA")
    if not folder:
        pytest.skip("POCKENGINE_DATA is not set; it names the folder of texts")
    files = sorted(path for path in Path(folder, "text").rglob("*.*") if path.is_file())
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    tokenizer = KINDS[kind]()
    assert sum(map(len, texts)) > 1_000_000
    check(program, tokenizer, tokenizer_table(tokenizer), texts)


def test_removal_around_pieces_is_supported_where_nothing_is_removed(program: Path) -> None:
    texts = ["Don't STOP, it'S 12345 ½\r\n\n  a\u0301b/\n"]
    check(program, of_pairs(O200K, "removed"), table_of(O200K, "removed"), texts)
    assert of_pairs(O200K, "removed").encode(texts[0]).ids == of_pairs(O200K).encode(texts[0]).ids
    assert not covers(parse(r"\p{N}{1,3}|\p{L}+(?!a)"))
    with pytest.raises(ImportModelError, match="a pattern that is Removed and inverted"):
        table_of((r"\p{N}{1,3}",), "removed")


STEPS = 14
"""PE_TK_STEPS of pe_tokenizer_table.h."""


def with_steps(table: bytes, places: dict[int, int]) -> bytes:
    """Return a table with other numbers in its steps, and its own checksum."""
    head = struct.unpack_from("<4I", table)
    at, count = struct.unpack_from("<2I", table, 4 * 10 + 8 * STEPS)
    changed = bytearray(table)
    for place, number in places.items():
        struct.pack_into("<I", changed, at + 4 * (place % count), number)
    struct.pack_into("<I", changed, 12, zlib.crc32(changed[16:]))
    assert struct.unpack_from("<3I", changed) == head[:3]
    return bytes(changed)


@pytest.mark.parametrize("places", [{0: 6}, {1: 0}, {1: 10_000}, {5: 32}, {-4: Step.NOT}])
def test_steps_that_lead_nowhere_are_refused(places: dict[int, int], program: Path) -> None:
    table = table_of(O200K)
    assert with_steps(table, {}) == table
    with pytest.raises(AssertionError, match="a step of its patterns leads nowhere"):
        tokenized(program, with_steps(table, places), ["a"])


def fault_of(program: Path, table: bytes, texts: list[str]) -> str:
    try:
        tokenized(program, table, texts)
    except AssertionError as error:
        return str(error)
    return ""


def test_other_steps_stay_within_the_text(program: Path) -> None:
    """Sound steps of patterns that no compiler writes, such as those that match nothing."""
    drawn = random.Random(0)
    runs = [chr(c) * 9 for c in (65, 39, 32, 0x4E2D)]
    texts = ["", "a", "I'll 'S\u0301 12 \n\n.", "é" * 20, *runs]
    faults = []
    for _ in range(60):
        places = {drawn.randrange(400): drawn.choice([0, 1, 2, 3, 4, 5, 31]) for _ in range(3)}
        faults.append(fault_of(program, with_steps(table_of(O200K), places), texts))
    assert all("the tokenizer's table is damaged" in fault for fault in faults if fault)
    assert faults.count("") > 20


SYNTAX = [
    "a{2}|b{2,}|c{,2}d|(?:ef|eg)?h",
    r"(?i:ab(c|d)?)|[[:alpha:]_-]+|\P{L}+",
    r"a?+ab|a*+b|\d+\w|\.[\[\\]+|[^\]a-d\n]x",
    r"\[\s\S",
    "a+ab|a{1,2}(?:a|ab)b|(a(?!b)|ab)c",
]


@pytest.mark.parametrize("pattern", SYNTAX)
def test_syntax_matches(pattern: str, program: Path) -> None:
    drawn = random.Random(0)
    texts = [
        "".join(drawn.choices("aabbbcdefghABC.[]\\x1 -\n", k=drawn.randrange(1, 40)))
        for _ in range(5000)
    ]
    check(program, of_pairs((pattern,)), table_of((pattern,)), texts)


@pytest.mark.parametrize("name", REFUSED)
def test_errors_name_unsupported_published_patterns(name: str) -> None:
    pattern, fault = REFUSED[name]
    with pytest.raises(ImportModelError, match=f"splits texts by .*, which has {fault}"):
        table_of((pattern,))


FAULTS = {
    "a+a+a+b|c": "more than 2 unbounded repeats in a sequence",
    "a{3,2}": r"a quantifier \{3,2\}",
    "(" * 300 + "a" + ")" * 300: "groups nested more than 16 deep",
    "a*": "a match of no characters",
    "a|b?": "a match of no characters",
    "^a": r"'\^'",
    r"a\b": r"'\\\\b'",
    "a+?": r"a quantifier \+\?",
    "a{1,2}+": r"a quantifier \{1,2\}\+",
    "(?:ab)+": "a repeated group",
    "a(?!bc)": "more than one set",
    "a(?=b)": r"'\(\?'",
    "a[]b]": r"'\[\]'",
    "a]": r"'\]'",
    "a)": "without its '\\('",
    "(a": "without its '\\)'",
    "[a": "without its '\\]'",
    "(?i:'st)": "adjacent letters that are one character in another case",
    "a{,}b": r"a quantifier \{,\}",
}


@pytest.mark.parametrize("pattern", FAULTS)
def test_errors_name_unsupported_syntax(pattern: str) -> None:
    with pytest.raises(ImportModelError, match=FAULTS[pattern]):
        parse(pattern)


def test_patterns_larger_than_the_tables_of_c_are_refused() -> None:
    with pytest.raises(ImportModelError, match="by 9 patterns; the C runtime has at most 8"):
        table_of(("a",) * (MOST_PATTERNS + 1))
    with pytest.raises(ImportModelError, match="sets of characters; the C runtime has at most 32"):
        table_of(("|".join(map(chr, range(0x4E00, 0x4E40))),))


def test_patterns_after_bytes_are_refused() -> None:
    facts = json.loads(of_bytes(LLAMA3).to_str())
    facts["pre_tokenizer"]["pretokenizers"].append({"type": "Digits", "individual_digits": False})
    with pytest.raises(ImportModelError, match="a pre-tokenizer Digits after ByteLevel"):
        tokenizer_table(Tokenizer.from_str(json.dumps(facts)))


def test_falcon_is_refused() -> None:
    tokenizer = of_bytes()
    digits, threes = pre.Digits(individual_digits=False), pre.Split(Regex("[0-9]{3}"), "isolated")
    parts = [pre.ByteLevel(add_prefix_space=False), digits, threes]
    tokenizer.pre_tokenizer = pre.Sequence([pre.Punctuation("contiguous"), *parts])
    with pytest.raises(ImportModelError, match="has a pre-tokenizer Punctuation, which"):
        tokenizer_table(tokenizer)
    tokenizer.pre_tokenizer = pre.ByteLevel(add_prefix_space=True)
    with pytest.raises(ImportModelError, match="a pre-tokenizer ByteLevel with add_prefix_space"):
        tokenizer_table(tokenizer)
