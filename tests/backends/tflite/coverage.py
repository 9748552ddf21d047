"""Ops supported by the TFLite backend, listed in docs/reference/ops/tflite.md.

`python -m pockengine.tests.backends.tflite.coverage` writes the table; a test compares it.
"""

from pockengine.backends.tflite.forms import FORMS
from pockengine.backends.tflite.forms.arithmetic import COMPARED, SAME
from pockengine.tests.backends.coverage import NEVER_MET, Coverage

COVERAGE = Coverage(
    page="reference/ops/tflite.md",
    heading="in TFLite",
    forms=FORMS,
    formed="several operators",
    words={op: f"`{name}`" for op, name in {**SAME, **COMPARED}.items()},
    never_met=NEVER_MET,
)

if __name__ == "__main__":
    COVERAGE.write()
