"""Forms: ONNX Runtime's result of each op equals the oracle's, and no op is missing."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pockengine.backends.onnx.forms import FORMS, quantized
from pockengine.tests.backends.form_checks import check_op, made
from pockengine.tests.backends.onnx.computed import computed

MADE = made(FORMS, elsewhere=quantized.FORMS)  # test_quantized.py


@pytest.mark.parametrize("op", MADE)
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_an_op_equals_the_oracle(op: str, data: st.DataObject, tmp_path: Path) -> None:
    check_op(op, data, computed, tmp_path)
