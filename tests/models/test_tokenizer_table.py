"""The C tokenizer returns the same tokens and text as `tokenizers`."""

import json
import random
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer, models
from transformers.models.qwen3_5 import tokenization_qwen3_5

from pockengine.errors import ImportModelError
from pockengine.models.tokenizer_table import tokenizer_table
from pockengine.tests.fuzz.mutate import mutate
from pockengine.tests.models.published_patterns import QWEN35
from pockengine.tests.models.tokenizer_kinds import KINDS, mixture, of_bytes
from pockengine.tests.models.tokenizer_program import build, tokenized


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("tokenizer"))


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_and_texts_match_tokenizers(kind: str, program: Path) -> None:
    tokenizer = KINDS[kind]()
    texts = mixture()
    found = tokenized(program, tokenizer_table(tokenizer), texts)
    expected = [row.ids for row in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    for text, ids, (tokens, decoded) in zip(texts, expected, found, strict=True):
        assert tokens == ids, text
        assert decoded == tokenizer.decode(ids), text


def test_long_runs_of_marks_are_put_in_order(program: Path) -> None:
    """Of two classes in the wrong order, and of all classes at random; with equal ones in each."""
    tokenizer, drawn = KINDS["qwen"](), random.Random(0)
    marks = [c for c in map(chr, range(0x300, 0x370)) if unicodedata.combining(c)]
    runs = ["\u0301" * 60_000 + "\u0323" * 60_000, "".join(drawn.choices(marks, k=2_000))]
    texts = [f"a{run}e{run}" for run in runs] + runs
    found = tokenized(program, tokenizer_table(tokenizer), texts)
    for text, (tokens, decoded) in zip(texts, found, strict=True):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert (tokens, decoded) == (ids, tokenizer.decode(ids))


def test_qwen_pattern_is_supported() -> None:
    assert QWEN35[0] == tokenization_qwen3_5.PRETOKENIZE_REGEX


def test_special_tokens_of_a_text_are_added(program: Path) -> None:
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=of_bytes(), bos_token="<s>", eos_token="</s>"
    )
    tokenizer.add_bos_token, tokenizer.add_eos_token = True, True
    tokenizer.update_post_processor()
    ids = tokenizer("a b")["input_ids"]
    assert (ids[0], ids[-1]) == (1, 2)
    table = tokenizer_table(tokenizer.backend_tokenizer)
    assert tokenized(program, table, ["a b"], marked=True)[0][0] == ids


def test_damaged_tables_are_refused(program: Path) -> None:
    table = tokenizer_table(of_bytes())
    drawn = random.Random(0)
    damaged = [mutate(table, drawn) for _ in range(20)]
    for data in (b"", table[:-4], *(data for data in damaged if data != table)):
        with pytest.raises(AssertionError, match="the tokenizer's table"):
            tokenized(program, data, ["a"])


def test_errors_name_unsupported_tokenizers() -> None:
    def refused(change: Callable[[dict[str, Any]], object], fault: str) -> None:
        facts = json.loads(of_bytes().to_str())
        change(facts)
        with pytest.raises(ImportModelError, match=fault):
            tokenizer_table(Tokenizer.from_str(json.dumps(facts)))

    refused(lambda f: f.update(normalizer={"type": "Lowercase"}), "a normalizer Lowercase")
    refused(lambda f: f.update(pre_tokenizer={"type": "Whitespace"}), "a pre-tokenizer Whitespace")
    refused(lambda f: f["model"].update(end_of_word_suffix="</w>"), "end_of_word_suffix '</w>'")
    refused(lambda f: f["added_tokens"][0].update(single_word=True), "'<unk>' is a single word")
    mark = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    marked = {"type": "TemplateProcessing", "single": [mark], "pair": [mark], "special_tokens": {}}
    refused(lambda f: f.update(post_processor=marked), "cannot encode a text: tokenizers fails")
    pieces = Tokenizer(models.WordPiece({"a": 0}, unk_token="a"))
    with pytest.raises(ImportModelError, match="a model WordPiece"):
        tokenizer_table(pieces)
