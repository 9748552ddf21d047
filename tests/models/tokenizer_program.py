"""A program that tokenizes texts by the C runtime, under sanitizers."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from pockengine.backends.native.runtime_files import RUNTIME
from pockengine.tests.backends.c.harness import COMMON, WARNINGS
from pockengine.tests.backends.c.objects import build_executable

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
        const int64_t room = pe_tokenizer_most(&t, bytes);
        int64_t *tokens = malloc((size_t)room * sizeof *tokens);
        void *memory = malloc(pe_tokenizer_memory(&t, bytes));
        int64_t made =
            pe_tokenize(&t, text, bytes, arguments[1][0] == 'm' ? 3u : 0u, tokens, room, memory);
        made = made < 0 ? 0 : made; /* of a damaged table only */
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


def build(folder: Path) -> Path:
    """Compile the program."""
    source, path = folder / "main.c", folder / "tokenize"
    source.write_text(PROGRAM)
    build_sanitized([*sources_of(SOURCES), source], path)
    return path


def sources_of(patterns: Sequence[str]) -> list[Path]:
    """Return the C files of the runtime that match any of these patterns."""
    return [file for pattern in patterns for file in sorted(RUNTIME.glob(pattern))]


def build_sanitized(sources: Sequence[Path], path: Path) -> None:
    """Compile a program of the runtime with sanitizers."""
    flags = (*COMMON, *WARNINGS, "-O1", "-fsanitize=address,undefined")
    build_executable(sources, ["gcc", *flags, "-fno-sanitize-recover=all"], RUNTIME, path)


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
