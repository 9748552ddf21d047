"""Private names of frameworks, which any release may drop: each one is in a reviewed table."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from pockengine.tests.repo.tree import files, read

FRAMEWORKS = set(
    [
        "ai_edge_litert",
        "distributed",
        "flax",
        "flwr",
        "jax",
        "jaxlib",
        "keras",
        "labgrid",
        "onnx",
        "onnxruntime",
        "optax",
        "optuna",
        "paramiko",
        "peft",
        "sqlalchemy",
        "tensorflow",
        "tflite",
        "torch",
        "torchao",
        "transformers",
        "tvm",
        "tvm_ffi",
    ]
)
INTERNAL = ("keras.src", "tensorflow.python", "torch.fx.experimental")
"""Modules that are private by the framework's word, without an underscore."""
TABLE = "tests/repo/private_names.toml"


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def dotted(node: ast.AST) -> list[str]:
    """Return the names of `a.b.c`; the first is empty where it is no plain name."""
    if isinstance(node, ast.Attribute):
        return [*dotted(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else [""]


def imported(tree: ast.AST) -> dict[str, str]:
    """Return the frameworks' names in a file, by what it calls them."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.split(".")[0]
                known[alias.asname or name] = name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return {key: name for key, name in known.items() if name.split(".")[0] in FRAMEWORKS}


def used(tree: ast.AST) -> Iterator[str]:
    """Yield each private name of a framework that a file imports, or reads of what it imported."""
    known = imported(tree)
    names = list(known.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, *rest = dotted(node)
            if first in known:
                names.append(".".join([known[first], *rest]))
    for name in names:
        if any(map(private, name.split("."))) or name.startswith(INTERNAL):
            yield name


def ends(names: set[str]) -> set[str]:
    """Leave out the beginnings of longer names."""
    return {name for name in names if not any(one.startswith(f"{name}.") for one in names)}


def found() -> dict[str, set[str]]:
    """Return the private names of each framework."""
    names: dict[str, set[str]] = {}
    for path in files("*.py"):
        if path.parts[0] not in {"tests", "build_defs"}:
            for name in used(ast.parse(read(path))):
                names.setdefault(name.split(".")[0], set()).add(name)
    return {framework: ends(known) for framework, known in names.items()}


def test_each_private_name_is_reviewed() -> None:
    table = tomllib.loads(read(Path(TABLE)))

    assert {key: set(names) for key, names in table.items()} == found(), f"review it in {TABLE}"
    assert all(reason for names in table.values() for reason in names.values())
