"""A bounded run of the fuzzer of TFLite files."""

from pathlib import Path

from pockengine.tests.fuzz.damage import fuzz
from pockengine.tests.fuzz.lite_readers import readers


def test_damaged_tflite_files_are_errors_and_no_tracebacks(tmp_path: Path) -> None:
    counts, findings = fuzz(readers, 400, seed=1, place=tmp_path)
    assert counts == {"floats": 200, "quantised": 200}
    assert not findings
