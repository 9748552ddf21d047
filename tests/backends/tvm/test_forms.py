"""Forms in TVM: its result of each op equals the oracle's."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pockengine.backends.tvm.backend import TvmBackend
from pockengine.devices import load_device
from pockengine.tests.backends.form_checks import check_op, made
from pockengine.tests.backends.tvm.computed import computed

MADE = made(TvmBackend(load_device("host")).target().ops)


@pytest.mark.parametrize("op", MADE)
@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_an_op_equals_the_oracle(op: str, data: st.DataObject, tmp_path: Path) -> None:
    check_op(op, data, computed, tmp_path)
