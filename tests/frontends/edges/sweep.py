"""Run groups of cases and report where our results and gradients differ from a framework's."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.tests.frontends.edges.arrays import (
    ArrayCase,
    Results,
    add_gradients,
    differences,
    results_of,
)
from pockengine.tests.frontends.edges.compiled import by_c


class Frontend(Protocol):
    """A framework's results and our imported graph, by `result_name` and `param_name`."""

    def expected(self, cases: Sequence[ArrayCase], /) -> Mapping[str, np.ndarray]:
        """Run the cases in the framework; gradients are named `gradient.<param>`."""

    def imported(self, cases: Sequence[ArrayCase], /) -> Graph:
        """Import the cases."""

    def feed(self, cases: Sequence[ArrayCase], /) -> Mapping[str, np.ndarray]:
        """Return the graph's inputs."""


class Sweep:
    """All groups of a framework; each is run and imported once."""

    def __init__(self, frontend: Frontend, groups: Mapping[str, Sequence[ArrayCase]]) -> None:
        self.groups = groups
        self._frontend = frontend
        self._prepared: dict[str, tuple[Results, Graph]] = {}
        self._by_oracle: dict[str, dict[str, str]] = {}

    def wrong_by_oracle(self, group: str) -> dict[str, str]:
        """Return the oracle's differences, by case and part."""
        if group not in self._by_oracle:
            _, graph = self.prepare(group)
            with np.errstate(all="ignore"):
                found = run(graph, self._frontend.feed(self.groups[group]))
            self._by_oracle[group] = self._differences(group, found)
        return self._by_oracle[group]

    def wrong_in_c(self, group: str) -> dict[str, str]:
        """Return generated C's differences, by case and part."""
        _, graph = self.prepare(group)
        return self._differences(group, by_c(graph, self._frontend.feed(self.groups[group])))

    def _differences(self, group: str, found: Mapping[str, np.ndarray]) -> dict[str, str]:
        """Compare a graph's results, in the framework's order of dimensions."""
        expected, graph = self.prepare(group)
        orders = {f"gradient.{name}": param.permutation for name, param in graph.params.items()}
        arrays = {
            name: x if (order := orders.get(name)) is None else x.transpose(np.argsort(order))
            for name, x in found.items()
        }
        return differences(results_of(self.groups[group], arrays), expected)

    def prepare(self, group: str) -> tuple[Results, Graph]:
        """Return the framework's results and our graph with gradients."""
        if group not in self._prepared:
            cases = self.groups[group]
            expected = results_of(cases, self._frontend.expected(cases))
            graph = self._frontend.imported(cases)
            add_gradients(graph)
            self._prepared[group] = expected, graph
        return self._prepared[group]


class EdgeTests:
    """Tests of one framework; a subclass names it."""

    sweep: ClassVar[Sweep]
    exempt: ClassVar[Mapping[str, str]]
    """Case and part -> why it may differ. An unneeded entry fails the test."""
    allowed: ClassVar[Mapping[str, str]] = {}
    """Cases where the framework itself differs between CPUs: allowed, but not required."""
    in_c: ClassVar[Mapping[str, str]] = {}
    """Exemptions of generated C alone."""

    def pytest_generate_tests(self, metafunc: Any) -> None:
        if "group" in metafunc.fixturenames:
            metafunc.parametrize("group", self.sweep.groups)

    def test_the_oracle_matches_the_framework(self, group: str) -> None:
        check_exempt(self.sweep.wrong_by_oracle(group), {**self.exempt, **self.allowed})

    def test_generated_c_matches_the_framework(self, group: str) -> None:
        exempt = {**self.exempt, **self.allowed, **self.in_c}
        check_exempt(self.sweep.wrong_in_c(group), exempt)

    def test_each_exemption_is_needed(self) -> None:
        wrong = set().union(*(self.sweep.wrong_by_oracle(group) for group in self.sweep.groups))
        unneeded = sorted(self.exempt.keys() - wrong)
        assert unneeded == [], unneeded


def check_exempt(wrong: Mapping[str, str], exempt: Mapping[str, str]) -> None:
    """Fail if a difference is not exempt."""
    others = [text for place, text in wrong.items() if place not in exempt]
    assert others == [], "\n".join(others)
