"""Every py_binary starts; test_campaigns.py starts those of tests."""

import pytest

from pockengine.tests.repo.programs import PROGRAMS, expect_help


@pytest.mark.parametrize("program", [p for p in PROGRAMS if not p.startswith("tests/")])
def test_it_starts(program: str) -> None:
    expect_help(program)
