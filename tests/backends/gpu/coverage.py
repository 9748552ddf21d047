"""Ops supported by the GPU backend, listed in docs/reference/ops/gpu.md.

`python -m pockengine.tests.backends.gpu.coverage` writes the table; a test compares it.
"""

from pockengine.backends.gpu.kernels import FAMILIES
from pockengine.tests.backends.coverage import NEVER_MET, Coverage

COVERAGE = Coverage(
    page="reference/ops/gpu.md",
    heading="on a GPU",
    forms=FAMILIES,
    formed="a kernel",
    words={},
    never_met={
        **NEVER_MET,
        "fusion": "one kernel, if what it is built around has one",
        "stop_gradient": "gone once gradients are derived",
        "unpack_mask": "not made: masks stay as they are",
    },
)

if __name__ == "__main__":
    COVERAGE.write()
