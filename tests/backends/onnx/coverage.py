"""Which of our ops the ONNX backend has: a table in docs/onnx.md, from the tables in the code.

`python -m pockengine.tests.backends.onnx.coverage` writes it, and a test compares.
"""

from collections.abc import Callable
from pathlib import Path

import pockengine
from pockengine.backends.onnx.forms import FORMS
from pockengine.backends.onnx.forms.arithmetic import ORDERED, SAME
from pockengine.compiler.ops import all_ops
from pockengine.compiler.passes.legalize import RULES

DOCUMENT = Path(str(pockengine.__file__)).parent / "docs" / "onnx.md"
BEGIN, END = "<!-- coverage: begin -->\n", "<!-- coverage: end -->\n"

NEVER_MET = {
    "batch_norm": "other ops before a backend sees it",
    "batch_norm_dx": "other ops before a backend sees it",
    "cotangent": "gone once gradients are derived",
    "custom_gradient": "gone once gradients are derived",
    "fusion": "what the compiler makes for backends that fuse themselves",
}
"""Ops that no graph has when a backend gets it."""


def how(op: str) -> str:
    """What becomes of an op."""
    if op in (names := {**SAME, **ORDERED}):
        return f"`{names[op]}`"
    if op in FORMS:
        return f"several operators: `{_module(FORMS[op])}`"
    if op in RULES:
        return f"our own ops first: `{_module(RULES[op])}`"
    return NEVER_MET.get(op, "refused by its name")


def _module(rule: Callable[..., object]) -> str:
    """The file in which a form or rule stands."""
    return rule.__module__.rpartition(".")[2] + ".py"


def table() -> str:
    """The table, in Markdown."""
    rows = [f"| `{op.name}` | {how(op.name)} |" for op in all_ops()]
    return "\n".join(["| our op | in ONNX |", "|---|---|", *rows]) + "\n"


def split(document: str) -> tuple[str, str, str]:
    """The document before, between and after the marks."""
    head, _, rest = document.partition(BEGIN)
    inside, _, tail = rest.partition(END)
    return head, inside, tail


def main() -> None:
    """Write the table into the document."""
    head, _, tail = split(DOCUMENT.read_text(encoding="utf-8"))
    DOCUMENT.write_text(f"{head}{BEGIN}{table()}{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
