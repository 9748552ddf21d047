"""Python in tests: bytecode is cached by the content of its source, and files are not synced."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pockengine.tests.repo.tree import ROOT

CACHING = "build_defs/sitecustomize.py"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return new_package(tmp_path / "one", "def fail() -> None:\n    raise ValueError\n")


def new_package(root: Path, text: str) -> Path:
    """Make a package of one module beside the caching file; return the folder that contains it."""
    package = root / "pockengine"
    (package / "build_defs").mkdir(parents=True)
    shutil.copy(ROOT / CACHING, package / CACHING)
    (package / "__init__.py").touch()
    (package / "module.py").write_text(text)
    return root


def run(root: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python as in a Bazel test, with the package on its path."""
    caches = {"TEST_SRCDIR": str(root), "XDG_CACHE_HOME": str(root.parent / "cache")}
    path = os.pathsep.join([str(root), str((root / "pockengine" / CACHING).parent)])
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        env={**caches, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def cached(root: Path) -> set[str]:
    """Return the names of the bytecode files in the cache."""
    return {path.name for path in (root.parent / "cache").rglob("*.pyc")}


def test_two_folders_share_bytecode_and_errors_name_the_right_file(place: Path) -> None:
    other = place.parent / "other"
    shutil.copytree(place, other)
    for root in (place, other):
        failed = run(root, "-c", "from pockengine.module import fail; fail()")
        assert f'File "{root}/pockengine/module.py", line 2, in fail' in failed.stderr
    assert len(cached(place)) == 2, "the package and its module"
    assert list(place.glob("**/module*.pyc")) == []


def test_a_changed_source_of_the_same_size_and_time_is_compiled_again(place: Path) -> None:
    module = place / "pockengine" / "module.py"
    for number in ("1", "2", "1"):
        module.write_text(f"NUMBER = {number}\n")
        os.utime(module, (10**9, 10**9))
        ran = run(place, "-c", "from pockengine.module import NUMBER; print(NUMBER)")
        assert ran.stdout.strip() == number, ran.stderr
    assert len(cached(place)) == 3


def test_damaged_bytecode_is_compiled_again(place: Path) -> None:
    line = "from pockengine.module import fail; print(fail.__name__)"
    assert run(place, "-c", line).stdout.strip() == "fail"
    for path in (place.parent / "cache").rglob("*.pyc"):
        path.write_bytes(b"damaged")
    assert run(place, "-c", line).stdout.strip() == "fail"


def test_a_module_of_the_package_runs_as_a_script(place: Path) -> None:
    script = place / "pockengine" / "module.py"
    script.write_text("from pockengine import build_defs; print(__name__)")
    ran = run(place, str(script))
    assert ran.stdout.strip() == "__main__", ran.stderr


@pytest.mark.parametrize("environment", [{"TEST_SRCDIR": ""}, {"XDG_CACHE_HOME": "relative"}])
def test_nothing_is_cached_elsewhere(place: Path, environment: dict[str, str]) -> None:
    ran = run(place, "-c", "import pockengine.module", **environment)
    assert ran.returncode == 0, ran.stderr
    assert cached(place) == set()


@pytest.mark.parametrize(("folder", "synced"), [("/tests", "False"), ("", "True")])
def test_files_are_synced_only_outside_tests(place: Path, folder: str, synced: str) -> None:
    ran = run(place, "-c", "import os; print(os.fsync.__module__ == 'posix')", TEST_SRCDIR=folder)
    assert ran.stdout.strip() == synced, ran.stderr
