"""A bounded run of the fuzzer of TFLite and Keras files."""

from pathlib import Path

from pockengine.tests.fuzz.damage import fuzz
from pockengine.tests.fuzz.lite_readers import readers


def test_damaged_files_raise_our_errors(tmp_path: Path) -> None:
    counts, findings = fuzz(readers, 450, seed=1, place=tmp_path)
    assert counts == {"floats": 150, "quantized": 150, "keras": 150}
    assert not findings
