"""Commands start as `bazel run` starts them; programs without a framework print their help."""

import os
import re
import subprocess

import pytest

from pockengine.tests.repo.programs import help_test
from pockengine.tests.repo.tree import ROOT

test_it_prints_help = help_test("")


@pytest.mark.parametrize("program", ["cli/cli", "farm/cli/bench", "farm/cli/farm"])
def test_a_command_starts(program: str) -> None:
    path = ROOT / program
    if not path.is_file():
        pytest.skip("programs are built by Bazel")
    # Of this test's path, only the bytecode cache: a program sets its own path.
    environment = os.environ | {"PYTHONPATH": str(ROOT / "build_defs")}

    ran = subprocess.run([path, "--help"], env=environment, capture_output=True, text=True)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.match("usage|Usage", ran.stdout), ran.stdout
