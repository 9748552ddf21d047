"""Public names as their sources define them: nothing is imported, so that any machine builds."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "pockengine"

Definition = ast.ClassDef | ast.FunctionDef
DEPTH = 8
"""Modules that pass a name on, at most."""


@dataclass(frozen=True)
class Found:
    """A definition and the module that it stands in."""

    node: Definition
    module: str


@cache
def parse(module: str) -> ast.Module:
    """Return the syntax tree of a module of the package."""
    place = ROOT.joinpath(*module.split(".")[1:])
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def find(module: str, name: str, depth: int = DEPTH) -> Found | None:
    """Return the definition of a name, through the modules that import it, else None."""
    tree = parse(module)
    for node in tree.body:
        if isinstance(node, Definition) and node.name == name:
            return Found(node, module)
    for inner in ast.walk(tree):
        if isinstance(inner, ast.ImportFrom) and (inner.module or "").startswith(PACKAGE):
            for alias in inner.names:
                if (alias.asname or alias.name) == name and depth:
                    return find(str(inner.module), alias.name, depth - 1)
    return None


def public_names() -> dict[str, str]:
    """Return each name that `import pockengine` offers, with the module that it comes from."""
    return {
        alias.asname or alias.name: str(node.module)
        for node in ast.walk(parse(PACKAGE))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}.")
        for alias in node.names
        if alias.name == alias.asname
    }


def bases(found: Found) -> Iterator[Found]:
    """Yield a class and its bases within the package, nearest first."""
    yield found
    if isinstance(found.node, ast.ClassDef):
        for base in found.node.bases:
            if isinstance(base, ast.Name) and (parent := find(found.module, base.id)):
                yield from bases(parent)
