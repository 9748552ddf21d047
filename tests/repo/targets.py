"""The targets of the BUILD files, read without Bazel: sources, and dependencies written by hand.

BUILD files are close enough to Python to run with recorders in place of rules.
"""

import ast
import builtins
import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pockengine.tests.repo.tree import files, read

RULES = ("py_binary", "py_library", "py_test", "pytest_test")


@dataclass(frozen=True)
class Target:
    """A target of a Python rule, or files to be checked; sources are relative to the root."""

    label: str
    rule: str
    sources: tuple[str, ...]
    deps: tuple[str, ...]

    @property
    def name(self) -> str:
        """The target's name within its package."""
        return self.label.partition(":")[2]


@functools.cache
def targets() -> dict[str, Target]:
    """Return every target by its absolute label; an alias is a target with one dependency."""
    found = (target for folder in _packages() for target in _targets_of(folder))
    return {target.label: target for target in found}


@functools.cache
def _packages() -> tuple[str, ...]:
    return tuple(str(path.parent) for path in files("BUILD"))


def _targets_of(folder: str) -> list[Target]:
    package = "" if folder == "." else folder
    found: list[Target] = []

    def add(rule: str, name: str, srcs: Sequence[str], deps: Sequence[str]) -> None:
        paths = tuple(_path(absolute(package, label)) for label in srcs)
        labels = tuple(absolute(package, label) for label in deps)
        found.append(Target(absolute(package, ":" + name), rule, paths, labels))

    def recorder(rule: str) -> Callable[..., None]:
        return lambda name, srcs=(), deps=(), **_: add(rule, name, srcs, deps)

    rules: dict[str, Any] = {rule: recorder(rule) for rule in RULES}
    rules["alias"] = lambda name, actual, **_: add("alias", name, (), (actual,))
    rules["glob"] = lambda include, exclude=(), **_: list(_glob(folder, include, exclude))
    rules["checked_files"] = lambda *_: add("checked_files", "checked_files", (), ())
    rules |= {"DEPS": {}, "DEVICES": {}, "PACKAGES": [], "PROGRAMS": defaultdict(list)}
    rules["native"] = SimpleNamespace(package_name=lambda: package, glob=rules["glob"])
    _run(Path(folder, "BUILD"), rules)
    return found


def _run(path: Path, names: Mapping[str, Any]) -> dict[str, Any]:
    """Run a Starlark file as Python; all other names do nothing. Return all names."""
    text = read(path)
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    ran = dict.fromkeys(used - set(dir(builtins)), lambda *_, **__: None) | dict(names)

    def load(label: str, *loaded: str) -> None:
        """Load the macro `folder`, and constants from our files."""
        for name in (name for name in loaded if name == "folder" or name.isupper()):
            if label.startswith("//") and name not in names:
                ran[name] = _run(Path(_path(label)), names)[name]

    ran["load"] = load
    exec(compile(text, str(path), "exec"), ran)
    return ran


def _glob(folder: str, include: Sequence[str], exclude: Sequence[str]) -> Iterator[str]:
    """Yield files as Bazel's glob does: it does not enter other packages."""
    included, excluded = _pattern(include), _pattern(exclude)
    for name in _sources()[folder]:
        if included.fullmatch(name) and not excluded.fullmatch(name):
            yield name


@functools.cache
def _sources() -> dict[str, list[str]]:
    """Return the modules of each package, relative to it."""
    found: dict[str, list[str]] = {package: [] for package in _packages()}
    for path in files("*.py"):
        package = next(parent for parent in path.parents if str(parent) in found)
        found[str(package)].append(str(path.relative_to(package)))
    return found


def _pattern(globs: Sequence[str]) -> re.Pattern[str]:
    meanings = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    parts = (re.split(r"(\*\*/|\*\*|\*)", glob) for glob in globs)
    each = ("".join(meanings.get(part, re.escape(part)) for part in glob) for glob in parts)
    return re.compile("|".join(f"(?:{one})" for one in each) or "(?!)")


def absolute(package: str, label: str) -> str:
    """Return a package's label as //a:b."""
    if label.startswith("@"):
        return label
    if not label.startswith("//"):
        label = f"//{package}:{label.removeprefix(':')}"
    return label if ":" in label else f"{label}:{label.rpartition('/')[2]}"


def _path(label: str) -> str:
    return label.removeprefix("//").replace(":", "/").removeprefix("/")
