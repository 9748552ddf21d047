"""Private names of frameworks, which any release may drop, are listed in a reviewed table.

Private names that a file imports, or reads from an imported module, are listed in full. The syntax
does not reveal an object's class, so private attributes are listed by name, except those of our own
classes.
"""

import ast
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pockengine.tests.repo.tree import files, nodes, read

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
"""Modules that the framework declares private, without an underscore."""
TABLE = "tests/repo/private_names.toml"
BY_NAME = {"delattr", "getattr", "hasattr", "object", "setattr", "replaced"}
"""Functions that take an object and the name of its attribute, including patch.object."""


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def dotted(node: ast.AST) -> list[str]:
    """Return the names of `a.b.c`; the first is empty if it is not a plain name."""
    if isinstance(node, ast.Attribute):
        return [*dotted(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else [""]


def imported(tree: Sequence[ast.AST]) -> dict[str, str]:
    """Return a file's names of frameworks' modules and members."""
    known = {}
    for node in tree:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.split(".")[0]
                known[alias.asname or name] = name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return {key: name for key, name in known.items() if name.split(".")[0] in FRAMEWORKS}


def used(tree: Sequence[ast.AST]) -> Iterator[str]:
    """Yield each private name of a framework that a file imports, or reads from an import."""
    known = imported(tree)
    names = list(known.values())
    for node in tree:
        if isinstance(node, ast.Attribute):
            first, *rest = dotted(node)
            if first in known:
                names.append(".".join([known[first], *rest]))
    for name in names:
        if any(map(private, name.split("."))) or name.startswith(INTERNAL):
            yield name


def attributes(tree: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the private attributes that a file reads or writes of objects other than its own."""
    known = {"cls", "self", *imported(tree)} | {
        alias.asname or alias.name.split(".")[0]
        for node in tree
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in tree:
        if isinstance(node, ast.Attribute) and private(node.attr):
            if dotted(node)[0] not in known:
                yield node.attr
        elif isinstance(node, ast.Call) and len(node.args) > 1 and dotted(node.func)[-1] in BY_NAME:
            name = node.args[1]
            if isinstance(name, ast.Constant) and private(str(name.value)):
                yield str(name.value)


def defined(tree: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the names of a file's own classes: methods, fields, and attributes set on self."""
    for node in tree:
        for part in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(part, ast.FunctionDef):
                yield part.name
            elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                yield part.target.id
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and dotted(node.value) == ["self"]
        ):
            yield node.attr


def ends(names: set[str]) -> set[str]:
    """Drop prefixes of longer names."""
    return {name for name in names if not any(one.startswith(f"{name}.") for one in names)}


def sources() -> list[Sequence[ast.AST]]:
    outside = {"build_defs", "tests"}
    return [nodes(path) for path in files("*.py") if path.parts[0] not in outside]


def found() -> dict[str, set[str]]:
    """Return the private names of each framework, and the private attributes of objects."""
    names: dict[str, set[str]] = {}
    trees = sources()
    for name in (name for tree in trees for name in used(tree)):
        names.setdefault(name.split(".")[0], set()).add(name)
    table = {framework: ends(known) for framework, known in names.items()}
    read_of_objects = {name for tree in trees if imported(tree) for name in attributes(tree)}
    own = {name for tree in trees for name in defined(tree)}
    return {**table, "attributes": read_of_objects - own}


def test_each_private_name_is_reviewed() -> None:
    table = tomllib.loads(read(Path(TABLE)))

    assert {key: set(names) for key, names in table.items()} == found(), f"review it in {TABLE}"
    entries = [entry for names in table.values() for entry in names.values()]
    assert all(set(entry) == {"why", "guard"} and all(entry.values()) for entry in entries)


def test_attributes_of_objects_are_found() -> None:
    text = "import torch\nmodule.part._modules\ngetattr(f(), '_fields')\nself._own\ntorch._C"

    assert set(attributes([*ast.walk(ast.parse(text))])) == {"_modules", "_fields"}
