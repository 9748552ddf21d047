"""Dependencies of the Python targets: the owners of what their sources import.

`python -m pockengine.tests.repo.deps` writes them into build_defs/deps.bzl.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from pockengine import _PLACES as PUBLIC
from pockengine.tests.repo.targets import Target, absolute, targets
from pockengine.tests.repo.tree import ROOT, files, nodes

FILE = Path("build_defs/deps.bzl")
COMMAND = "python -m pockengine.tests.repo.deps"
HEAD = f'''"""Written by `{COMMAND}`: what sources import.

DEPS has the deps of each target by package and name, PACKAGES each package whose files are
checked, and PROGRAMS each py_binary that prints help, by the framework in its dependencies.
"""
'''
FRAMEWORKS = ("jax", "tensorflow", "torch")
WORKERS = re.compile(r"//farm/references:\w+_worker")
"""Programs that read requests; tests of the bench start each."""
LAZY = {
    "//:root": "//:errors",
    "//farm/cli:bench_lib": "//farm/report:report",
    "//models:registry": "//models:models",
}
"""By target: a dependency that it imports only if its users have it."""

WHEELS = {
    name: f"@pypi//{name}"
    for name in (
        *("click", "cryptography", "hypothesis", "numpy", "paramiko", "pytest", "rich"),
        *("safetensors", "sqlalchemy"),
    )
} | {"PIL": "@pypi//pillow", "sklearn": "@pypi//scikit_learn", "ziglang": "@zig//ziglang"}
"""Packages in at most one set of wheels; a framework's set is chosen in BUILD files."""


@functools.cache
def modules() -> dict[str, str]:
    """Return every module's source by module name; a folder's is its __init__.py."""
    sources = {
        ".".join(("pockengine", *path.with_suffix("").parts)): str(path) for path in files("*.py")
    }
    return {name.removesuffix(".__init__"): source for name, source in sources.items()}


@functools.cache
def imported(source: str) -> frozenset[str]:
    """Return what a source imports, at the top or in a function: our sources, other packages.

    Imports for type checkers only do not count, nor does an __init__.py beside an imported module:
    without it a folder is a namespace package.
    """
    tree = nodes(Path(source))
    checked = [x for x in tree if isinstance(x, ast.If) and _name(x.test) == "TYPE_CHECKING"]
    skipped = {id(part) for node in checked for part in ast.walk(node)}
    names = {name for node in tree if id(node) not in skipped for name in _imports(node)}
    return frozenset(modules().get(name, name.partition(".")[0]) for name in names)


def _imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
        yield from (*names, *(name.partition(".")[0] for name in names))
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from [name if name in modules() else node.module for name in names]
        if node.module == "pockengine":
            yield from (PUBLIC.get(alias.name, "") for alias in node.names)
        yield node.module.partition(".")[0]  # importing pockengine.x imports pockengine
    elif isinstance(node, ast.Attribute) and _name(node.value) == "pockengine":
        yield PUBLIC.get(node.attr, "")  # pockengine.compile is loaded on access


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


@functools.cache
def owners() -> dict[str, str]:
    """Return the label of each source; of a library's where a program has the source too."""
    ranked = sorted(targets().values(), key=lambda target: target.rule == "py_library")
    return {source: target.label for target in ranked for source in target.sources}


@functools.cache
def dependencies(target: Target) -> tuple[str, ...]:
    """Return the labels of what the sources import, as buildifier sorts and shortens them."""
    used = set().union(*(imported(path) for path in target.sources if path in owners()))
    labels = {owners()[path] for path in used - set(target.sources) if path in owners()}
    labels |= {WHEELS[name] for name in used if name in WHEELS}
    labels -= {target.label, LAZY.get(target.label)}
    if target.rule == "pytest_test":
        labels.discard("@pypi//pytest")  # build_defs/pytest.bzl adds it
    return tuple(sorted(map(short, labels), key=lambda label: label.replace(":", "!")))


def programs(framework: str) -> list[str]:
    """Return the py_binarys that print help and have a framework's wheels; "" is none of them."""
    return [
        label
        for label, target in sorted(targets().items())
        if target.rule == "py_binary" and not WORKERS.fullmatch(label)
        if framework == next((name for name in FRAMEWORKS if name in _wheels(label)), "")
    ]


@functools.cache
def _wheels(label: str) -> frozenset[str]:
    """Return the frameworks of the sets of wheels that a target needs, directly or not."""
    if (target := targets().get(label)) is None:
        return frozenset({label.partition("//")[0].removeprefix("@pypi_")})
    deps = {absolute("", dep) for dep in (*target.deps, *dependencies(target))}
    return frozenset().union(*map(_wheels, deps))


def short(label: str) -> str:
    """Return //a/b for //a/b:b."""
    package, _, name = label.partition(":")
    return package if package.rpartition("/")[2] == name else label


def text() -> str:
    """Return the content of the generated file."""
    found = sorted(targets().values(), key=lambda target: target.label.removeprefix("//"))
    packages: dict[str, list[str]] = {}
    for target in found:
        rows = packages.setdefault(target.label[2:].partition(":")[0], [])
        if target.rule in ("py_library", "py_binary", "pytest_test"):
            deps = ", ".join(f'"{label}"' for label in dependencies(target))
            rows += [f'        "{target.name}": [{deps}],'] if deps else []
    lines = [HEAD, "DEPS = {"]
    for package, rows in packages.items():
        lines += [f'    "{package}": {{', *rows, "    },"] if rows else []
    checked = [target.label for target in found if target.rule == "checked_files"]
    lines += ["}", "", "PACKAGES = [", *(f'    "{label}",' for label in checked), "]", ""]
    lines += ["PROGRAMS = {"]
    for framework in ("", *FRAMEWORKS):
        rows = [f'        "{label}",' for label in programs(framework)]
        lines += [f'    "{framework}": [', *rows, "    ],"]
    return "\n".join([*lines, "}", ""])


def main() -> None:
    """Write the generated file."""
    (ROOT / FILE).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
