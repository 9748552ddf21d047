"""Each Python target depends on the modules that its sources import."""

import ast
import functools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pockengine import _PLACES as PUBLIC
from pockengine.tests.repo.targets import sources_within, targets
from pockengine.tests.repo.tree import files, read

LAZY = {
    "//:root": "//:errors",
    "//farm/cli:bench_lib": "//farm/report:report",
    "//models:registry": "//models:models",
}
"""Targets that import another's modules only if their users have these."""


@functools.cache
def modules() -> dict[str, str]:
    """Return every module's source by module name; a folder's is its __init__.py."""
    sources = {
        ".".join(("pockengine", *path.with_suffix("").parts)): str(path) for path in files("*.py")
    }
    return {name.removesuffix(".__init__"): source for name, source in sources.items()}


@functools.cache
def imported(source: str) -> frozenset[str]:
    """Return the sources that a source imports, at the top or in a function.

    Imports for type checkers only do not count, nor does an __init__.py beside an imported module:
    without it a folder is a namespace package.
    """
    names = set(_imports(ast.parse(read(Path(source)))))
    return frozenset(modules()[name] for name in names if name in modules())


def _imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom) and node.module is not None:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from [name if name in modules() else node.module for name in names]
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pockengine":
        yield PUBLIC.get(node.attr, "")  # pockengine.compile is loaded on access
    for child in ast.iter_child_nodes(node):
        yield from _imports(child)


@pytest.mark.parametrize("package", sorted({label.split(":")[0] for label in targets()}))
def test_a_target_depends_on_what_it_imports(package: str) -> None:
    missing = [
        f"{label}: {source} imports {other}"
        for label, target in targets().items()
        if label.startswith(package + ":")
        for source in target.sources
        if source.endswith(".py")
        for other in sorted(imported(source) - sources_within(label) - lazily(label))
    ]
    assert missing == []


def test_each_file_of_tests_is_run_by_one_target() -> None:
    counts = Counter(
        source
        for target in targets().values()
        if target.rule == "pytest_test"
        for source in target.sources
    )
    paths = [str(path) for path in files("test_*.py")]
    assert {path: counts[path] for path in paths if counts[path] != 1} == {}


def lazily(label: str) -> frozenset[str]:
    """Return the sources that a target may import without depending on them."""
    return sources_within(LAZY[label]) if label in LAZY else frozenset()
