"""Ops supported by the ONNX backend, listed in docs/reference/ops/onnx.md.

`python -m pockengine.tests.backends.onnx.coverage` writes the table; a test compares it.
"""

from pockengine.backends.onnx.forms import FORMS
from pockengine.backends.onnx.forms.arithmetic import ORDERED, SAME
from pockengine.tests.backends.coverage import NEVER_MET, Coverage

COVERAGE = Coverage(
    page="reference/ops/onnx.md",
    heading="in ONNX",
    forms=FORMS,
    formed="several operators",
    words={op: f"`{name}`" for op, name in {**SAME, **ORDERED}.items()},
    never_met=NEVER_MET,
)

if __name__ == "__main__":
    COVERAGE.write()
