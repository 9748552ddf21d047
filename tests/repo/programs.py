"""The programs in BUILD files, and their behaviour when started."""

import os
import re
import subprocess

import pytest

from pockengine.tests.repo.targets import targets
from pockengine.tests.repo.tree import ROOT

PROGRAMS = sorted(
    target.label.removeprefix("//").replace(":", "/")
    for target in targets().values()
    if target.rule == "py_binary"
)
"""Path of each program in Bazel's output folder."""


def expect_help(program: str) -> None:
    """Start a program: it prints its help; a worker of the bench exits silently without input.

    Imports and options are those of `bazel run`.
    """
    path = ROOT / program
    if not path.is_file():
        pytest.skip("programs are built by Bazel")
    # Of this test's path, only the bytecode cache: a program sets its own path.
    environment = os.environ | {"PYTHONPATH": str(ROOT / "build_defs")}

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
