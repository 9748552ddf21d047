"""Every py_binary starts: its path, imports and options are right as `bazel run` has them."""

import os
import re
import subprocess

import pytest

from pockengine.tests.repo.targets import targets
from pockengine.tests.repo.tree import ROOT, read

PROGRAMS = re.findall(r'^    "//(.*):(.*)",$', read(ROOT / "tests/repo/BUILD"), re.MULTILINE)


def test_each_program_of_a_build_file_is_listed() -> None:
    labels = {target.label for target in targets().values() if target.rule == "py_binary"}
    assert sorted(labels - {f"//{package}:{name}" for package, name in PROGRAMS}) == []


@pytest.mark.parametrize("program", [f"{at}/{name}" for at, name in PROGRAMS])
def test_it_starts(program: str) -> None:
    """It shows its help; a worker of the bench ends in silence, for nobody asks it anything."""
    path = ROOT / program
    if not path.is_file():
        pytest.skip("programs are built by Bazel")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    ran = subprocess.run(
        [str(path), "--help"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    if program.endswith("_worker"):
        assert ran.stdout == ""
    else:
        assert re.match("usage|Usage", ran.stdout), ran.stdout
