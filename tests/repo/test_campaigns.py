"""Every py_binary of tests starts: fuzzing, conformance, long runs."""

import pytest

from pockengine.tests.repo.programs import LISTED, expect_help

PROGRAMS = [f"{at}/{name}" for at, name in LISTED if at.startswith("tests/")]


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_starts(program: str) -> None:
    expect_help(program)
