"""BUILD, .bzl and WORKSPACE files are as buildifier leaves them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from pockengine.tests.repo.tree import ROOT, files, read

LINT = ("duplicated-name", "load", "no-effect", "unreachable", "unused-variable")


@pytest.fixture(name="buildifier")
def program() -> str:
    """Return the path of buildifier: Bazel's copy, or one on the PATH."""
    beside = ROOT.parent / "buildifier" / "buildifier"
    path = str(beside) if beside.is_file() else shutil.which("buildifier")
    if path is None:
        pytest.skip("buildifier is not installed (npm install --global @bazel/buildifier)")
    return path


def check(buildifier: str, sources: list[Path]) -> subprocess.CompletedProcess[str]:
    command = [buildifier, "-mode=check", "-lint=warn", f"-warnings={','.join(LINT)}"]
    return subprocess.run([*command, *map(str, sources)], capture_output=True, text=True)


def test_build_files_are_formatted(buildifier: str) -> None:
    sources = [ROOT / path for path in files("BUILD", "*.bzl", "WORKSPACE")]
    assert sources
    result = check(buildifier, sources)
    if result.returncode:
        pytest.fail(f"run buildifier on:\n{result.stdout}{result.stderr}", pytrace=False)


def test_the_checks_see_every_package() -> None:
    """Under Bazel only listed packages are here at all: a plain run finds those left out."""
    listed = read(Path("tests/repo/BUILD"))
    packages = [path.parent for path in files("BUILD") if "checked_files(" in read(path)]
    assert [p for p in packages if f'"//{p}",'.replace("//.", "//") not in listed] == []


@pytest.mark.parametrize(
    "text",
    ['x(deps = ["//a", ":b"])\n', 'load(":b.bzl", "c")\n', "x = ['a']\n"],
    ids=["unsorted", "unused load", "quotes"],
)
def test_what_it_would_change_fails(buildifier: str, tmp_path: Path, text: str) -> None:
    (tmp_path / "BUILD").write_text(text)
    assert check(buildifier, [tmp_path / "BUILD"]).returncode
