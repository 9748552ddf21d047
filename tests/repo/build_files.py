"""Read BUILD and .bzl files the way buildifier does, as far as its checks matter here.

Starlark is Python's syntax, so Python's own parser reads it. Nothing is rewritten: a finding says
where and what.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator

SORTED_ATTRIBUTES = {"data", "deps", "exports", "hdrs", "srcs", "tags", "visibility"}


def findings(text: str) -> list[str]:
    """Return `line: finding` for everything that buildifier would change."""
    tree = ast.parse(text)
    found = [*_lines(text), *_quotes(text), *_loads(tree)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found += _call(node, text)
        elif isinstance(node, ast.List | ast.Dict):
            found += _trailing_comma(node, text)
    return [f"{line}: {what}" for line, what in sorted(set(found))]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    if (text and not text.endswith("\n")) or text.endswith("\n\n"):
        yield text.count("\n"), "the file must end with one newline"
    for number, line in enumerate(text.splitlines(), 1):
        if line != line.rstrip() or "\t" in line:
            yield number, "trailing space or tab"
    for token in _tokens(text):
        if token.type == tokenize.INDENT and len(token.string) % 4:
            yield token.start[0], "indent by four spaces"


def _quotes(text: str) -> Iterator[tuple[int, str]]:
    for token in _tokens(text):
        if token.type == tokenize.STRING and re.match(r"[rb]*'", token.string):
            yield token.start[0], "use double quotes"


def _loads(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Loads stand sorted by label, and what they load is sorted; `*.bzl` of this folder last."""
    labels: list[tuple[int, str]] = []
    for node in tree.body:
        if not _is_load(node):
            labels = []  # a WORKSPACE loads in groups
            continue
        label, *names = [ast.literal_eval(argument) for argument in node.value.args]
        if labels and _label_order(label) < labels[-1]:
            yield node.lineno, f"load of {label} is out of order"
        labels.append(_label_order(label))
        if names != sorted(names):
            yield node.lineno, f"names loaded from {label} are not sorted"


def _is_load(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "load"
    )


def _label_order(label: str) -> tuple[int, str]:
    """Order of loads: other repositories, this one, this folder."""
    return (0 if label.startswith("@") else 1 if label.startswith("//") else 2, label)


def _item_order(item: str) -> tuple[int, str]:
    """Order in lists of labels: files, then `:x`, then `//x`, then `@x`."""
    phase = 1 if item.startswith(":") else 2 if item.startswith("//") else 3
    return (phase if item[0] in ":/@" else 0, item.replace(":", "!"))


def _call(node: ast.Call, text: str) -> Iterator[tuple[int, str]]:
    names = [keyword.arg for keyword in node.keywords if keyword.arg]
    if "name" in names[1:]:
        yield node.lineno, "name comes first"
    for keyword in node.keywords:
        if keyword.arg in SORTED_ATTRIBUTES and isinstance(keyword.value, ast.List):
            items = [item.value for item in keyword.value.elts if isinstance(item, ast.Constant)]
            if items != sorted(items, key=_item_order):
                yield keyword.value.lineno, f"{keyword.arg} is not sorted"
            if len(items) != len(set(items)):
                yield keyword.value.lineno, f"{keyword.arg} names something twice"


def _trailing_comma(node: ast.List | ast.Dict, text: str) -> Iterator[tuple[int, str]]:
    """A list or dict whose closing bracket stands on its own line ends in a comma."""
    items = node.elts if isinstance(node, ast.List) else node.values
    if not items or items[-1].end_lineno == node.end_lineno:
        return
    segment = ast.get_source_segment(text, node) or ""
    body = "\n".join(line.split(" #")[0] for line in segment.splitlines()[:-1])
    if not body.rstrip().endswith(","):
        yield node.end_lineno or node.lineno, "a list over several lines ends in a comma"


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(text).readline)
