"""The C tokenizer returns the same tokens and text as `tokenizers`."""

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer, models
from transformers.models.qwen3_5 import tokenization_qwen3_5

from pockengine.backends.native.runtime_files import RUNTIME, runtime_folders
from pockengine.errors import ImportModelError
from pockengine.models.tokenizer_table import tokenizer_table
from pockengine.tests.backends.c.harness import COMMON, WARNINGS
from pockengine.tests.fuzz.mutate import mutate
from pockengine.tests.models.tokenizer_kinds import KINDS, QWEN35, mixture, of_bytes

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "pe_tokenizer.h"
static char *text_of(FILE *file, size_t *bytes) {
    uint32_t length;
    if (fread(&length, 4, 1, file) != 1) {
        return NULL;
    }
    char *text = malloc(length + 1);
    *bytes = fread(text, 1, length, file);
    return text;
}
static void write_all(const void *data, size_t bytes) {
    const uint32_t length = (uint32_t)bytes;
    fwrite(&length, 4, 1, stdout);
    fwrite(data, 1, bytes, stdout);
}
int main(int count, char **arguments) {
    char message[PE_MESSAGE_BYTES];
    size_t bytes;
    char *table = text_of(stdin, &bytes), *text;
    pe_tokenizer t;
    if (count != 2 || pe_tokenizer_init(&t, table, bytes, message) != PE_OK) {
        return fprintf(stderr, "%s", message), 1;
    }
    while ((text = text_of(stdin, &bytes))) {
        const int64_t room = 3 * (int64_t)bytes + 16;
        int64_t *tokens = malloc((size_t)room * sizeof *tokens);
        void *memory = malloc(pe_tokenizer_memory(bytes));
        const int64_t made =
            pe_tokenize(&t, text, bytes, arguments[1][0] == 'm' ? 3u : 0u, tokens, room, memory);
        write_all(tokens, (size_t)made * sizeof *tokens);
        char *decoded = malloc((size_t)made * pe_tokenizer_longest(&t) + 1);
        size_t length = 0;
        bool first = true;
        for (int64_t i = 0; i < made; i++) {
            length += pe_token_text(&t, tokens[i], &first, decoded + length);
        }
        write_all(decoded, length);
        free(decoded), free(memory), free(tokens), free(text);
    }
    free(table);
    return 0;
}
"""
SOURCES = ("core/*.c", "text/pe_tokenizer*.c", "train/pe_crc.c")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    source, path = folder / "main.c", folder / "tokenize"
    source.write_text(PROGRAM)
    includes = [f"-I{each}" for each in runtime_folders()]
    files = [str(file) for name in SOURCES for file in sorted(RUNTIME.glob(name))]
    flags = [*COMMON, *WARNINGS, "-O1", "-fsanitize=address,undefined"]
    command = ["gcc", *flags, "-fno-sanitize-recover=all", *includes, *files, str(source)]
    subprocess.run([*command, "-lm", "-o", str(path)], check=True)
    return path


def tokenized(
    program: Path, table: bytes, texts: list[str], marked: bool = False
) -> list[tuple[list[int], str]]:
    """Return each text's tokens and their decoded text, from the C program."""
    encoded = b"".join(
        len(data).to_bytes(4, "little") + data
        for data in (table, *(text.encode() for text in texts))
    )
    command = [str(program), "marked" if marked else "plain"]
    done = subprocess.run(command, input=encoded, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[:3000]
    parts, at = [], 0
    while at < len(done.stdout):
        length = int.from_bytes(done.stdout[at : at + 4], "little")
        parts.append(done.stdout[at + 4 : at + 4 + length])
        at += 4 + length
    return [
        (list(memoryview(ids).cast("q")), text.decode(errors="replace"))
        for ids, text in zip(parts[::2], parts[1::2], strict=True)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_and_texts_match_tokenizers(kind: str, program: Path) -> None:
    tokenizer = KINDS[kind]()
    texts = mixture()
    found = tokenized(program, tokenizer_table(tokenizer), texts)
    expected = [row.ids for row in tokenizer.encode_batch(texts, add_special_tokens=False)]
    for text, ids, (tokens, decoded) in zip(texts, expected, found, strict=True):
        assert tokens == ids, text
        assert decoded == tokenizer.decode(ids), text


def test_qwen_pattern_is_supported() -> None:
    assert tokenization_qwen3_5.PRETOKENIZE_REGEX == QWEN35


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
    unigram = Tokenizer(models.Unigram([("a", 0.0)]))
    with pytest.raises(ImportModelError, match="a model Unigram"):
        tokenizer_table(unigram)
