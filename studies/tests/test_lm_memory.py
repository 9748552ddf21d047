"""Programs under memory limits, page cache included; needs root and control groups."""

import json
import sys
from pathlib import Path

import pytest

from pockengine.errors import FinetuneError
from pockengine.studies.lm_memory.limited import memory_group, run_limited

MB = 10**6


@pytest.fixture(scope="module", autouse=True)
def groups() -> None:
    try:
        with memory_group(None):
            pass
    except FinetuneError as error:
        pytest.skip(str(error))


def reading(path: Path, size: int) -> list[str]:
    """Return a program that allocates `size` bytes and reads a file."""
    code = "import json, sys; x = b'1' * int(sys.argv[1]); y = open(sys.argv[2], 'rb')\n"
    code += "while y.read(65536): pass\nprint(json.dumps({'bytes': len(x)}))"
    return [sys.executable, "-c", code, str(size), str(path)]


def test_memory_and_the_page_cache_count(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(64 * MB))
    run = run_limited(reading(tmp_path / "file", 32 * MB), None, [tmp_path / "file"])
    assert run.lines == [{"bytes": 32 * MB}]
    assert run.peak_bytes > 96 * MB


def test_a_limit_evicts_the_page_cache_and_ends_what_needs_more(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(64 * MB))
    run = run_limited(reading(tmp_path / "file", 32 * MB), 80 * MB, [tmp_path / "file"])
    assert run.peak_bytes <= 80 * MB
    with pytest.raises(FinetuneError, match="within 80,000,000 bytes"):
        run_limited(reading(tmp_path / "file", 120 * MB), 80 * MB, [tmp_path / "file"])
    assert json.dumps(run.lines) == f'[{{"bytes": {32 * MB}}}]'
