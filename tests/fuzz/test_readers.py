"""A bounded run of the readers' fuzzer."""

from pathlib import Path

from pockengine.tests.fuzz.damage import fuzz
from pockengine.tests.fuzz.readers import readers


def test_damaged_files_raise_our_errors(tmp_path: Path) -> None:
    counts, findings = fuzz(readers, 3600, seed=1, place=tmp_path)
    assert min(counts.values()) == 200
    assert not findings
