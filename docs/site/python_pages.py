"""Reference pages of Python: signatures, fields and docstrings, in Markdown."""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence

from pockengine.docs.site.sources import Definition, Found, bases, find, parse, public_names

GROUPS: Mapping[str, Sequence[str]] = {
    "Compile": ("compile", "compile_step", "CompileOptions", "Range", "Clip", "Storage", "Int8"),
    "What compiling returns": ("Compiled", "load"),
    "Train": ("FitOptions", "Checkpoints", "EarlyStopping", "RateSchedule", "Metric", "Pictures"),
    "Callbacks": ("Callback", "DutyCycle", "CsvLog", "TensorBoardLog", "MlflowLog", "TrackioLog"),
    "Data": ("Augmentation",),
    "Frontends": ("from_torch", "from_tensorflow", "from_jax", "from_onnx", "lora"),
}
"""Sections of the page; names of none stand under the last ones, optimizers and errors."""


def python_page() -> str:
    """Return the page of `import pockengine`."""
    places = public_names()
    optimizers = [name for name, module in places.items() if module.endswith(".optim")]
    groups = {**GROUPS, "Optimizers": optimizers}
    others = sorted(set(places) - {name for names in groups.values() for name in names})
    groups["Errors"] = others
    parts = ["# Python API\n", "Generated from the docstrings of the package.\n"]
    for title, names in groups.items():
        parts.append(f"## {title}\n")
        for name in names:
            found = find(places[name], name)
            if found is None:
                raise LookupError(f"{name}: no definition in {places[name]}")
            parts += describe(found)
    return "\n".join(parts)


def error_page() -> str:
    """Return the page of the error classes."""
    classes = [node for node in parse("pockengine.errors").body if isinstance(node, ast.ClassDef)]
    lines = [
        f"- `{one.name}` ({', '.join(ast.unparse(base) for base in one.bases)}): {_first(one)}"
        for one in classes
    ]
    head = (
        "# Error classes\n\n"
        "Every error that is raised on purpose derives from `PockEngineError`. Its message names "
        "the thing, the fact and the fix. The command line prints it as one line and ends with "
        "exit status 1.\n"
    )
    return "\n".join([head, *lines]) + "\n"


def fields_page(title: str, intro: str, module: str, names: Sequence[str]) -> str:
    """Return a page of dataclasses with their fields."""
    parts = [f"# {title}\n", f"{intro}\n"]
    for name in names:
        found = find(module, name)
        if found is None:
            raise LookupError(f"{name}: no definition in {module}")
        parts += describe(found, methods=False)
    return "\n".join(parts)


def describe(found: Found, *, methods: bool = True) -> list[str]:
    """Return a definition's section: its heading, signature, docstring, fields and methods."""
    node = found.node
    parts = [f"### {node.name}\n"]
    if isinstance(node, ast.FunctionDef):
        return [*parts, _signature(node), f"{_doc(node)}\n"]
    parts.append(f"{_doc(node)}\n")
    family = list(bases(found))
    fields = [line for one in reversed(family) for line in _fields(one.node)]
    if fields:
        parts += [*fields, ""]
    seen: set[str] = set()
    for one in family if methods else ():
        for method in _methods(one.node):
            if method.name not in seen:
                seen.add(method.name)
                parts += [f"#### {node.name}.{method.name}\n", _signature(method)]
                parts.append(f"{_doc(method)}\n")
    return parts


def _doc(node: Definition) -> str:
    """Return a docstring as Markdown: its indented lines are code."""
    return inspect.cleandoc(ast.get_docstring(node) or "").replace("<", "&lt;")


def _first(node: Definition) -> str:
    return " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())


def _signature(node: ast.FunctionDef) -> str:
    arguments = ast.unparse(node.args)
    arguments = re.sub(r"^(self|cls)(, )?", "", arguments)
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{node.name}({arguments}){returned}"
    if len(line) > 88:
        inside = ",\n    ".join(_split(arguments))
        line = f"{node.name}(\n    {inside},\n){returned}"
    return f"```python-signature\n{line}\n```\n".replace("python-signature", "text")


def _split(arguments: str) -> Iterator[str]:
    """Yield the arguments: commas within brackets or quotes do not divide."""
    depth, start, quoted = 0, 0, False
    for place, letter in enumerate(arguments):
        quoted ^= letter == "'"
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth and not quoted:
            yield arguments[start:place].strip()
            start = place + 1
    yield arguments[start:].strip()


def _methods(node: Definition) -> Iterator[ast.FunctionDef]:
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
            yield part


def _fields(node: Definition) -> Iterator[str]:
    """Yield a line for each field of a dataclass."""
    follows: list[ast.stmt | None] = [*node.body[1:], None]
    for part, after in zip(node.body, follows, strict=True):
        if not isinstance(part, ast.AnnAssign) or not isinstance(part.target, ast.Name):
            continue
        name = part.target.id
        if name.startswith("_") or "ClassVar" in ast.unparse(part.annotation):
            continue
        default, words = _default(part.value)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            words = " ".join(str(after.value.value).split())
        line = f"- `{name}: {ast.unparse(part.annotation)}{default}`"
        yield f"{line} {words}".rstrip()


def _default(value: ast.expr | None) -> tuple[str, str]:
    """Return a field's default as it is written, and what `option` says of it."""
    if value is None:
        return "", ""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "option":
        words = [one.value for one in value.args[1:] if isinstance(one, ast.Constant)]
        return f" = {ast.unparse(value.args[0])}", str(words[0]) if words else ""
    return f" = {ast.unparse(value)}", ""
