"""Every py_binary starts; test_campaigns.py starts those of tests."""

import pytest

from pockengine.tests.repo.programs import LISTED, expect_help
from pockengine.tests.repo.targets import targets

PROGRAMS = [f"{at}/{name}" for at, name in LISTED if not at.startswith("tests/")]


def test_each_program_of_a_build_file_is_listed() -> None:
    labels = {target.label for target in targets().values() if target.rule == "py_binary"}
    assert sorted(labels - {f"//{package}:{name}" for package, name in LISTED}) == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_starts(program: str) -> None:
    expect_help(program)
