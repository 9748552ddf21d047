"""BUILD, .bzl, MODULE.bazel and WORKSPACE files: their format, and one list of repositories."""

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

from pockengine.tests.repo.tree import ROOT, files, read

LINT = ("duplicated-name", "load", "no-effect", "unreachable", "unused-variable")


@pytest.fixture(name="buildifier")
def program() -> str:
    """Return the path of buildifier: Bazel's copy, or one on the PATH."""
    # A module extension adds a prefix to the names of its repositories.
    beside = next(ROOT.parent.glob("*buildifier/buildifier"), None)
    path = str(beside) if beside else shutil.which("buildifier")
    if path is None:
        pytest.skip("buildifier is not installed (npm install --global @bazel/buildifier)")
    return path


def check(buildifier: str, sources: list[Path]) -> subprocess.CompletedProcess[str]:
    command = [buildifier, "-mode=check", "-lint=warn", f"-warnings={','.join(LINT)}"]
    return subprocess.run([*command, *map(str, sources)], capture_output=True, text=True)


def test_the_pre_commit_hook_has_the_same_warnings() -> None:
    assert f"-warnings={','.join(LINT)} " in read(Path(".pre-commit-config.yaml"))


def test_build_files_are_formatted(buildifier: str) -> None:
    sources = [ROOT / path for path in files("BUILD", "*.bzl", "MODULE.bazel", "WORKSPACE")]
    assert sources
    result = check(buildifier, sources)
    if result.returncode:
        pytest.fail(f"run buildifier on:\n{result.stdout}{result.stderr}", pytrace=False)


def strings(node: ast.AST) -> set[str]:
    return {
        child.value
        for child in ast.walk(node)
        if isinstance(child, ast.Constant) and isinstance(child.value, str)
    }


def defined_repositories() -> set[str]:
    """Return the repositories that repositories() defines for WORKSPACE and for MODULE.bazel."""
    tree = ast.parse(read(Path("build_defs/repositories.bzl")))
    layers = next(
        strings(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets) == "_LAYERS"
    )
    names = [
        keyword.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "name"
    ]
    plain = {ast.literal_eval(name) for name in names if isinstance(name, ast.Constant)}
    return plain | {f"pypi_{layer}" for layer in layers}


def test_module_names_the_repositories_of_workspace() -> None:
    """WORKSPACE sees all defined repositories; MODULE.bazel only those it names."""
    used = [
        node
        for node in ast.walk(ast.parse(read(Path("MODULE.bazel"))))
        if isinstance(node, ast.Call) and ast.unparse(node).startswith("use_repo(repositories,")
    ]
    assert len(used) == 1
    assert strings(used[0]) == defined_repositories()


def test_each_lock_has_a_repository() -> None:
    locks = {path.stem for path in (ROOT / "third_party/pypi").glob("*.lock")}
    assert locks == {
        name.removeprefix("pypi_")
        for name in defined_repositories()
        if name == "zig" or name.startswith("pypi")
    }


@pytest.mark.parametrize(
    "text",
    ['x(deps = ["//a", ":b"])\n', 'load(":b.bzl", "c")\n', "x = ['a']\n"],
    ids=["unsorted", "unused load", "quotes"],
)
def test_misformatted_files_fail(buildifier: str, tmp_path: Path, text: str) -> None:
    (tmp_path / "BUILD").write_text(text)
    assert check(buildifier, [tmp_path / "BUILD"]).returncode
