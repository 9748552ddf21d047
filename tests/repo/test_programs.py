"""Every py_binary starts: its path, imports and options are right as `bazel run` has them."""

import os
import re
import subprocess
from collections.abc import Iterator

import pytest

from pockengine.tests.repo.tree import ROOT, files, read

PROGRAMS = re.findall(r'^    "//(.*):(.*)",$', read(ROOT / "tests/repo/BUILD"), re.MULTILINE)


def names_of_py_binaries() -> Iterator[tuple[str, str]]:
    """Yield each py_binary's package and a pattern of its name; `%s` stands for any text."""
    for path in files("BUILD"):
        for name in re.findall(r'py_binary\(\s*name = "([^"]+)"', read(path)):
            yield str(path.parent), re.escape(name).replace("%s", ".+")


def test_each_program_of_a_build_file_is_listed() -> None:
    missing = [
        f"//{package}:{pattern}"
        for package, pattern in names_of_py_binaries()
        if not any(package == at and re.fullmatch(pattern, name) for at, name in PROGRAMS)
    ]
    assert missing == []


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
