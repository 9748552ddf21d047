"""Groups of cases of one framework: where our results and gradients differ from its own."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.tests.frontends.edges.arrays import ArrayCase, Results, differences
from pockengine.tests.frontends.edges.compiled import by_c


class Frontend(Protocol):
    """A framework's own results, and our graph of them."""

    def expected(self, cases: Sequence[ArrayCase], /) -> Results:
        """Run the cases in the framework."""

    def imported(self, cases: Sequence[ArrayCase], /) -> Graph:
        """Import the cases and add the gradients."""

    def feed(self, cases: Sequence[ArrayCase], /) -> Mapping[str, np.ndarray]:
        """Return the graph's inputs."""

    def results_of(self, cases: Sequence[ArrayCase], found: Mapping[str, np.ndarray], /) -> Results:
        """Name what a graph returned."""


class Sweep:
    """All groups of a framework; each is run and imported once."""

    def __init__(self, frontend: Frontend, groups: Mapping[str, Sequence[ArrayCase]]) -> None:
        self.groups = groups
        self._frontend = frontend
        self._prepared: dict[str, tuple[Results, Graph]] = {}
        self._by_oracle: dict[str, dict[str, str]] = {}

    def wrong_by_oracle(self, group: str) -> dict[str, str]:
        """Return what the oracle gives otherwise, by case and part."""
        if group not in self._by_oracle:
            cases, (expected, graph) = self.groups[group], self._prepare(group)
            with np.errstate(all="ignore"):
                found = run(graph, self._frontend.feed(cases))
            self._by_oracle[group] = differences(self._frontend.results_of(cases, found), expected)
        return self._by_oracle[group]

    def wrong_in_c(self, group: str) -> dict[str, str]:
        """Return what generated C gives otherwise, by case and part."""
        cases, (expected, graph) = self.groups[group], self._prepare(group)
        found = by_c(graph, self._frontend.feed(cases))
        return differences(self._frontend.results_of(cases, found), expected)

    def _prepare(self, group: str) -> tuple[Results, Graph]:
        if group not in self._prepared:
            cases = self.groups[group]
            self._prepared[group] = self._frontend.expected(cases), self._frontend.imported(cases)
        return self._prepared[group]
