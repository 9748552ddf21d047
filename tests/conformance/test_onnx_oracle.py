"""All of ONNX's cases of single operators in our oracle: passed or refused, never wrong.

`bazel run //tests/conformance:onnx -- --all` runs the same cases in generated C.
"""

import numpy as np
import pytest

from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.onnx.model import from_onnx
from pockengine.tests.conformance.onnx_cases import Case, node_cases, result_of

AT_LEAST = 1412
"""Number of cases that passed at the last change; more may pass."""


def outcome(case: Case) -> str:
    """Import a case and compare the oracle's results."""
    try:
        graph = from_onnx(case.model, constants=case.constants)
    except ImportModelError:
        return "refused"
    if any(value.name not in case.inputs for value in graph.inputs):
        return "refused"  # its random numbers are implementation-defined
    found = run(graph, {value.name: case.inputs[value.name] for value in graph.inputs})
    for name, expected in case.outputs.items():
        actual = result_of(found, name)
        alike = actual.dtype == expected.dtype and actual.shape == expected.shape
        if not alike or not np.allclose(actual, expected, case.rtol, case.atol, equal_nan=True):
            return f"{case.name}: {name} is wrong"
    return "passed"


@pytest.mark.filterwarnings("ignore")  # some cases divide by zero on purpose
def test_no_case_is_wrong_and_most_pass() -> None:
    outcomes = [outcome(case) for case in node_cases() if case.incomparable is None]

    assert not [each for each in outcomes if each not in ("passed", "refused")]
    assert outcomes.count("passed") >= AT_LEAST
