"""Cases shared by JAX and TensorFlow: the same sweeps over each framework's own tables."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from pockengine.tests.frontends.edges.arrays import (
    VECTORS,
    ArrayCase,
    Functions,
    cases_of,
    edges,
    lines,
    masks,
    pairs,
    whole_pairs,
)


@dataclass(frozen=True)
class ArrayFunctions:
    """A framework's functions: names in its `modules`, or functions by name.

    `unused`: functions whose result is multiplied by 0.
    `with_number`: functions whose second argument is one of `numbers`.
    `rows`, `whole_rows`: functions that reduce rows of floats and of integers.
    `whole`: functions that reduce a vector.
    `losses`, `entropies`: functions of rows and targets, and of rows and labels.
    """

    modules: Mapping[str, ModuleType]
    unary: str
    binary: str
    unused: str
    with_number: str
    numbers: Sequence[float]
    parameters: Functions
    booleans: Functions
    integers: Functions
    divisions: Functions
    rows: Functions
    whole: Functions
    whole_rows: Functions
    losses: Functions
    entropies: Functions

    def groups(self, indexing: Iterable[ArrayCase]) -> dict[str, list[ArrayCase]]:
        """Return all cases of the framework."""
        return {
            "elementwise": list(self.elementwise()),
            "indexing": list(indexing),
            "loss": list(self.loss()),
            "reduction": list(self.reductions()),
        }

    def elementwise(self) -> Iterator[ArrayCase]:
        """Yield elementwise functions."""
        x = edges(normal=True)
        yield from cases_of(self._named(self.unary), x)
        yield from cases_of(self.parameters, x)
        for name, function in self._named(self.unused).items():
            yield ArrayCase(f"{name} of nothing", lambda x, f=function: f(x) * 0.0, (x,))
        yield from cases_of(self._named(self.binary), *pairs(normal=True))
        named = self._named(self.with_number)
        for (name, function), number in itertools.product(named.items(), self.numbers):
            yield ArrayCase(f"{name} {number}", lambda x, f=function, n=number: f(x, n), (x,))
        yield from cases_of(self.booleans, *masks())
        yield from cases_of(self.integers, *whole_pairs(narrow=True))
        yield from cases_of(self.divisions, *whole_pairs(zeros=False, narrow=True))

    def reductions(self) -> Iterator[ArrayCase]:
        """Yield reductions, scans, sorting and norms."""
        yield from cases_of(self.rows, lines(normal=True))
        for title, numbers in VECTORS.items():
            named = {f"{name} of {title}": function for name, function in self.whole.items()}
            yield from cases_of(named, np.array(numbers, np.float32))
        whole = np.array([[3, -1, 3, 0], [2**30, -(2**30), 1, 5], [-7, -7, -7, -7]], np.int32)
        yield from cases_of(self.whole_rows, whole)

    def loss(self) -> Iterator[ArrayCase]:
        """Yield losses of edge-case rows."""
        rows, finite = lines(normal=True), lines(finite=True, normal=True)
        yield from cases_of(self.losses, rows, np.ascontiguousarray(rows[::-1]))
        named = {f"{name} of finite rows": function for name, function in self.losses.items()}
        yield from cases_of(named, finite, np.ascontiguousarray(finite[::-1]))
        yield from cases_of(self.entropies, rows, (np.arange(len(rows)) % 4).astype(np.int32))

    def _named(self, names: str) -> dict[str, Callable[..., Any]]:
        return {name: self._find(name) for name in names.split()}

    def _find(self, name: str) -> Callable[..., Any]:
        head, *parts = name.split(".")
        part: Any = self.modules[head]
        for attribute in parts:
            part = getattr(part, attribute)
        function: Callable[..., Any] = part
        return function
