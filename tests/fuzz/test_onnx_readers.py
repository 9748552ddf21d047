"""A bounded run of the fuzzer of ONNX files."""

from pathlib import Path

from pockengine.tests.fuzz.damage import fuzz
from pockengine.tests.fuzz.onnx_readers import readers


def test_damaged_onnx_files_raise_our_errors(tmp_path: Path) -> None:
    counts, findings = fuzz(readers, 400, seed=1, place=tmp_path)
    assert counts == {"inside": 200, "outside": 200}
    assert not findings
