"""Unigram of the C tokenizer returns the same tokens and text as `tokenizers`."""

import json
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers

from pockengine.errors import ImportModelError
from pockengine.models.charsmaps import charsmap_of, texts_of
from pockengine.models.tokenizer_table import tokenizer_table
from pockengine.tests.models.tokenizer_kinds import MARK, mixture
from pockengine.tests.models.tokenizer_program import build, tokenized
from pockengine.tests.models.unigram_kinds import (
    BEGIN,
    UNIGRAM_KINDS,
    UNKNOWN,
    charsmap,
    of_scores,
    of_words,
)

HEAD_BYTES = 16
"""Bytes of a table before those of its checksum."""
SECTIONS, SECTION_COUNT, UNIGRAM_SECTIONS = 10, 34, 6
"""The first number of the sections in a table, their count, and how many are of Unigram."""
CLUSTERS = (
    *("\u0301", "\u0302", "\u0323", "\u200d", "\u200c", "\r\n", "\r", "\n", "\u200b", "\ufeff"),
    *("\u0600", "\u0d4e", "\u00a9", "\u263a", "\U0001f468", "\U0001f3fd", "\U0001f1e6"),
    *("\u0958", "\u094d", "\u0915", "\u093c", "\u0903", "\u1100", "\u1161", "\u11a8", "\uac00"),
    *("\uac01", "\u00a8", "\u2122", "\u0344", "\ufdfa", "\x01", "\x00", "\u30ab", "\u3099"),
    *("a", "e", "o\u0308", " ", "  ", "\u3000", MARK, "\uff1c", "s", "\uff1e", "``", "''"),
    *(UNKNOWN, BEGIN, " <m> ", "\x1c", "\u0085", "\u00ad", "\U000e0001", "\U00020000"),
)
TEXTS = st.lists(
    st.lists(st.one_of(st.sampled_from(CLUSTERS), st.characters(exclude_categories=["Cs"]))).map(
        "".join
    ),
    min_size=100,
    max_size=100,
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("tokenizer"))


def check(program: Path, tokenizer: Tokenizer, texts: list[str]) -> None:
    rows = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    found = tokenized(program, tokenizer_table(tokenizer), texts)
    for text, row, (tokens, decoded) in zip(texts, rows, found, strict=True):
        assert tokens == row.ids, text[:1000]
        assert decoded == tokenizer.decode(row.ids), text[:1000]


@pytest.mark.parametrize("kind", UNIGRAM_KINDS)
def test_tokens_and_texts_match_tokenizers(kind: str, program: Path) -> None:
    long = ["a" * 5000, "\u0301" * 2000, "e\u0301" * 2000, "\ufdfa" * 500, " " * 3000, "ab " * 2000]
    check(program, UNIGRAM_KINDS[kind](), [*mixture(), *long])


@pytest.mark.parametrize("kind", ["t5", "spm", "quotes", "first word", "unigram llama"])
def test_tokens_of_fuzzed_texts_match(kind: str, program: Path) -> None:
    tokenizer = UNIGRAM_KINDS[kind]()

    @settings(max_examples=10, deadline=None, database=None)
    @given(texts=TEXTS)
    def fuzzed(texts: list[str]) -> None:
        check(program, tokenizer, texts)

    fuzzed()


def test_every_character_is_in_its_clusters(program: Path) -> None:
    characters = [*range(0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE1000)]
    contexts = (
        *(
            "a{}",
            "{}\u0301\u0302",
            "{}a\u0301",
            "\u00a9\u200d{}\u0301",
            "\u00a9{}\u200d\u00a9\u0301",
        ),
        *("\u0915{}\u0915\u0301", "\u0915\u094d{}\u0915\u0301", "{}\u094d\u0915\u0301"),
        *("{}\uac00\u0301", "{}\u1161\u0301", "{}\u11a8\u0301", "\u1100{}\u0301", "\uac01{}\u0301"),
    )
    keys = ["a", "\u0301", "\u00a9", "\u0915", "\uac00", "\u1161", "\u11a8", "\u1100", "\uac01"]
    tokenizer = of_scores([(UNKNOWN, 0.0), *((key, -1.0) for key in keys), ("\u0302", -1.0)])
    same = {key.encode(): key.encode() for key in keys}
    tokenizer.normalizer = normalizers.Precompiled(charsmap_of(same))
    texts = [
        "\n".join(context.format(chr(c)) for context in contexts for c in characters[at : at + 512])
        for at in range(0, len(characters), 512)
    ]
    check(program, tokenizer, texts)


PARTS = ["a", "b", "c", "ab", "ba", "aa", "abc", "bca", "aaa", "xy", "x", "\u00e9", "\u00e9a", MARK]
ROWS = st.lists(
    st.tuples(
        st.sampled_from(PARTS), st.sampled_from([-3.0, -2.0, -1.5, -1.0, 0.0, 0.1, 0.2, 7.0])
    ),
    max_size=20,
)


@pytest.mark.parametrize("fallback", [False, True])
def test_equal_scores_and_unknown_characters_match(fallback: bool, program: Path) -> None:
    bytes_of_some = [(f"<0x{byte:02X}>", -5.0) for byte in (*b"axyz", *"é日".encode())]

    @settings(max_examples=25, deadline=None, database=None)
    @given(
        rows=ROWS,
        texts=st.lists(st.text("abcxyz\u00e9日" + MARK), min_size=50, max_size=50),
    )
    def fuzzed(rows: list[tuple[str, float]], texts: list[str]) -> None:
        every = [(UNKNOWN, -1.0), *rows, *bytes_of_some]
        named = [UNKNOWN, f"x{UNKNOWN}y{UNKNOWN}{UNKNOWN}", "<0x61>z<0x7A>", ""]
        check(program, of_scores(every, fallback), [*texts, *named])

    fuzzed()


def test_adjacent_unknown_characters_may_be_a_token(program: Path) -> None:
    tokenizer = of_scores([(UNKNOWN, 100.0), ("xy", 120.0), ("a", 110.0)])
    assert tokenizer.encode("axya axyxa").ids == [2, 1, 2, 0, 2, 0, 2]
    check(program, tokenizer, ["axya", "axyxa", "xyxy", "x", "yx"])


def test_long_texts_take_linear_time(program: Path) -> None:
    rows = [(UNKNOWN, 0.0), *(("a" * count, -float(count % 3)) for count in range(1, 40))]
    check(program, of_scores(rows), ["a" * 300_000, "b" * 300_000, "a\u0301" * 150_000])


def test_charsmaps_are_read_as_tokenizers_does() -> None:
    texts = texts_of(charsmap())
    mapped = normalizers.Precompiled(charsmap())
    assert len(texts) > 300
    for key, text in texts.items():
        assert mapped.normalize_str(key.decode()) == text.decode()
    units = bytearray(charsmap_of({b"ab": b"x", b"a": b"y", b"c": b"y"}))
    root = int.from_bytes(units[4:8], "little") >> 10
    units[4:8] = (root >> 8 << 10 | 1 << 9).to_bytes(4, "little")  # scaled by 256
    assert texts_of(bytes(units)) == {b"a": b"y", b"c": b"y"}
    assert normalizers.Precompiled(bytes(units)).normalize_str("abcb") == "yyb".replace(
        "yyb", "ybyb"
    )


def test_damaged_charsmaps_are_refused() -> None:
    whole = charsmap_of({b"a": b"x"})
    far = bytearray(whole)
    far[4 + 4 * 512 : 8 + 4 * 512] = (1 << 31 | 99).to_bytes(4, "little")
    for damaged in (b"", whole[:40], b"\3" + whole[1:], bytes(far), whole[:-2] + b"\xff\0"):
        with pytest.raises(ImportModelError, match="precompiled_charsmap is damaged"):
            texts_of(damaged)


def test_damaged_tries_and_rules_do_no_harm(program: Path) -> None:
    table = tokenizer_table(UNIGRAM_KINDS["spm"]())
    drawn = random.Random(0)
    texts = ["Caf\u00e9 e\u0301 \uff21  \ufdfa \u65e5", "\r\n"]
    faults = {fault_of(program, damaged(table, drawn), texts) for _ in range(60)}
    assert faults == {"", "the tokenizer's table is damaged: its tries or rules lead nowhere"}


def fault_of(program: Path, table: bytes, texts: list[str]) -> str:
    """Return why a table is refused, or nothing; a sanitizer's report counts too."""
    try:
        tokenized(program, table, texts)
    except AssertionError as error:
        return str(error).partition("\n")[0]
    return ""


def damaged(table: bytes, drawn: random.Random) -> bytes:
    """Change a few bytes of Unigram's sections, and the checksum with them."""
    numbers = struct.unpack_from(f"<{SECTIONS + 2 * SECTION_COUNT}I", table)
    sections = list(zip(numbers[SECTIONS::2], numbers[SECTIONS + 1 :: 2], strict=True))
    places = [at for at, _ in sections[-UNIGRAM_SECTIONS:]]
    start = drawn.choice(places)
    end = min([at for at, _ in sections if at > start] + [len(table)])
    changed = bytearray(table)
    for _ in range(drawn.choice((1, 3, 20))):
        changed[drawn.randrange(start, end)] = drawn.choice(
            (0, 1, 2, 127, 255, drawn.randrange(256))
        )
    changed[12:16] = zlib.crc32(changed[HEAD_BYTES:]).to_bytes(4, "little")
    return bytes(changed)


def test_tables_of_other_versions_are_refused(program: Path) -> None:
    table = bytearray(tokenizer_table(of_scores([(UNKNOWN, 0.0)])))
    table[4:8] = (3).to_bytes(4, "little")
    with pytest.raises(AssertionError, match="is of another version; compile the model again"):
        tokenized(program, bytes(table), ["a"])


def test_errors_name_unsupported_tokenizers() -> None:
    plain = of_words(rules=[normalizers.Precompiled(charsmap())])

    def refused(change: Callable[[dict[str, Any]], object], fault: str) -> None:
        facts = json.loads(plain.to_str())
        change(facts)
        with pytest.raises(ImportModelError, match=fault):
            tokenizer_table(Tokenizer.from_str(json.dumps(facts)))

    marks = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}
    prepend = {"type": "Prepend", "prepend": MARK}
    words = {"type": "WhitespaceSplit"}
    after = {"type": "Sequence", "pretokenizers": [marks | {"split": False}, words]}
    rules = {"type": "Sequence", "normalizers": [prepend, {"type": "NFKC"}]}
    digits = {"type": "Sequence", "pretokenizers": [words, {"type": "Punctuation"}]}
    refused(lambda f: f["model"].update(unk_id=None), "a model Unigram without unk_id")
    refused(lambda f: f.update(normalizer={"type": "NFKC"}), "a normalizer NFKC, which the C")
    refused(lambda f: f.update(normalizer=rules), "a normalizer NFKC after NFC or U\\+2581")
    refused(
        lambda f: f.update(normalizer=prepend, pre_tokenizer=marks),
        "Metaspace that prepends U\\+2581 after Prepend",
    )
    longer = {"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 1025}
    refused(lambda f: f.update(normalizer=longer), "makes a text 1025 times as long")
    refused(lambda f: f.update(decoder=None), "no decoder Metaspace or Replace")
    refused(lambda f: f.update(pre_tokenizer=after), "a pre-tokenizer WhitespaceSplit")
    refused(lambda f: f.update(pre_tokenizer=digits), "a pre-tokenizer Punctuation")
    refused(lambda f: f["added_tokens"][0].update(normalized=True), "'<unk>' is a single word or")
    composed = of_scores([(UNKNOWN, 0.0)])
    composed.normalizer = normalizers.NFC()
    with pytest.raises(ImportModelError, match="bytes or NFC"):
        tokenizer_table(composed)
    with pytest.raises(ImportModelError, match="a model WordLevel"):
        tokenizer_table(Tokenizer(models.WordLevel({UNKNOWN: 0}, UNKNOWN)))
