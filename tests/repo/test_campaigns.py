"""Every py_binary of tests starts: fuzzing, conformance, long runs."""

import pytest

from pockengine.tests.repo.programs import PROGRAMS, expect_help


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.startswith("tests/")])
def test_it_starts(program: str) -> None:
    expect_help(program)
