"""A short fuzzing run of the runtime's parsers, and a few kills of savers."""

import subprocess
from pathlib import Path

import pytest

from pockengine.tests.backends.c.fuzzing import FOLDER, TARGETS, fuzz
from pockengine.tests.backends.c.harness import SANITIZED
from pockengine.tests.backends.c.kills import kill_savers

SECONDS = 4
PLANTED = r"""
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    volatile uint8_t *copy = malloc(size + 1);
    copy[0] = 1;
    if (size > 4 && data[0] == 'F') {
        if (data[1] == 'U') {
            if (data[2] == 'Z') {
                copy[size + 1] = 0;
            }
        }
    }
    free((void *)copy);
    return 0;
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_makes_a_parser_fail(tmp_path: Path, target: str) -> None:
    outcome = fuzz(target, SECONDS, 1, tmp_path)
    assert outcome.fault is None, f"{outcome.fault!r}\n{outcome.report[:4000]}"
    assert outcome.executions > 1000
    assert outcome.corpus > len(list((FOLDER / "corpus" / target).iterdir()))


def test_the_fuzzer_finds_a_planted_fault(tmp_path: Path) -> None:
    (tmp_path / "planted.c").write_text(PLANTED)
    (tmp_path / "seed").write_bytes(b"hello world")
    traced = [*SANITIZED, "-O1", "-fsanitize-coverage=trace-pc", "-c", "planted.c"]
    subprocess.run(["gcc", *traced, "-o", "planted.o"], cwd=tmp_path, check=True)
    command = ["gcc", *SANITIZED, "-O1", str(FOLDER / "driver.c"), "planted.o", "-o", "fuzzer"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(
        [str(tmp_path / "fuzzer"), "60", "1", "seed"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    # Since GCC 16 the check of object sizes comes before that of addresses.
    assert "heap-buffer-overflow" in done.stderr or "insufficient space" in done.stderr
    assert (tmp_path / "fault").read_bytes().startswith(b"FUZ")


def test_kills_leave_whole_checkpoints(tmp_path: Path) -> None:
    outcome = kill_savers(40, 1, tmp_path)
    assert (outcome.kills, outcome.torn) == (40, 0)
    assert outcome.saved > 0
    assert outcome.leftovers <= 2
