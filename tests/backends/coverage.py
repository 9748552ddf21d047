"""Support of each op by a backend: a table in the backend's page, generated from its code."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pockengine
from pockengine.compiler.ops import all_ops
from pockengine.compiler.passes.legal.legalize import RULES

BEGIN, END = "<!-- coverage: begin -->\n", "<!-- coverage: end -->\n"

NEVER_MET = {
    "batch_norm": "other ops before a backend sees it",
    "batch_norm_dx": "other ops before a backend sees it",
    "cotangent": "gone once gradients are derived",
    "custom_gradient": "gone once gradients are derived",
    "fusion": "what the compiler makes for backends that fuse themselves",
}
"""Ops that never reach a backend without fusion."""


@dataclass(frozen=True)
class Coverage:
    """One backend's ops: `words` for some; `forms`, rules of the others, are shown as `formed`."""

    page: str
    heading: str
    forms: Mapping[str, Callable[..., object]]
    formed: str
    words: Mapping[str, str]
    never_met: Mapping[str, str]

    @property
    def document(self) -> Path:
        """The page with the table."""
        return Path(str(pockengine.__file__)).parent / "docs" / self.page

    def how(self, op: str) -> str:
        """Describe the support of an op."""
        if op in self.words:
            return self.words[op]
        if op in self.forms:
            return f"{self.formed}: `{_module(self.forms[op])}`"
        if op in self.never_met:
            return self.never_met[op]
        if op in RULES:
            return f"our own ops first: `{_module(RULES[op])}`"
        return "refused by its name"

    def table(self) -> str:
        """The table, in Markdown."""
        rows = [f"| `{op.name}` | {self.how(op.name)} |" for op in all_ops()]
        return "\n".join([f"| our op | {self.heading} |", "|---|---|", *rows]) + "\n"

    def shown(self) -> str:
        """The table in the page."""
        return self._parts()[1]

    def write(self) -> None:
        """Write the table into the page."""
        head, _, tail = self._parts()
        self.document.write_text(f"{head}{BEGIN}{self.table()}{END}{tail}", encoding="utf-8")

    def check(self) -> None:
        """Assert that the page lists every op once, with the current text."""
        assert self.shown() == self.table(), "run python -m pockengine.tests.backends.*.coverage"
        known = {op.name for op in all_ops()}
        assert self.forms.keys() <= known
        assert self.words.keys() <= known
        assert self.never_met.keys() <= known
        assert not self.never_met.keys() & self.forms.keys()

    def _parts(self) -> tuple[str, str, str]:
        """The page's text before, between and after the marks."""
        head, _, after = self.document.read_text(encoding="utf-8").partition(BEGIN)
        inside, _, tail = after.partition(END)
        return head, inside, tail


def _module(rule: Callable[..., object]) -> str:
    """The file that defines a form or a rule."""
    return rule.__module__.rpartition(".")[2] + ".py"
