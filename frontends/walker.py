"""Base of every frontend's walk over a framework's operators: one graph, one list of problems.

Unsupported operators are collected while walking, so that one error names all of it: an operator
that reads the result of a failed one is checked for a rule and otherwise passed over.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from pockengine.compiler.ir import Builder, DType, Graph, Shape
from pockengine.errors import CompileError, GraphError, ImportModelError
from pockengine.frontends.dtypes import dtype_of
from pockengine.frontends.emit.complex import Complex
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.faults import check_own
from pockengine.frontends.layout import Tensor, framework_order, plain
from pockengine.frontends.problems import EMPTY, Problems

MOST_NODES = 200_000
"""Nested loops grow without bounds; no real step has this many kernels."""


class FailedBody(Unsupported):
    """The graph inside an operator failed; its problems are already recorded."""


class GraphWalker:
    """One import: the graph so far, and the problems."""

    framework: ClassVar[str]
    """Its name in errors."""
    damage: ClassVar[tuple[type[Exception], ...]] = ()
    """Exceptions that rules raise, in addition to our errors, for inconsistent files."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Distributions whose versions an error of our own code names."""
    complex_result: ClassVar[str] = "complex numbers; return their real parts, sizes or angles"

    def __init__(self, name: str, *, checks_indices: bool = True) -> None:
        """Start an empty graph."""
        self.g = Builder(Graph(name, checks_indices=checks_indices))
        self.problems = Problems()

    @contextmanager
    def building(self, thing: str, place: str, scope: str | None = None) -> Iterator[None]:
        """Build one operator in a block; an import error ends the block and is recorded.

        `place` is the location shown to the user, `scope` the module of the nodes, where that is
        another.
        """
        if len(self.g.graph.nodes) > MOST_NODES:
            raise ImportModelError(
                f"{self.g.graph.name} unrolls to more than {MOST_NODES} operations; shorten its "
                "loops"
            )
        with self.noting(thing, place), self.g.scope(place if scope is None else scope):
            yield

    @contextmanager
    def noting(self, thing: str, place: str) -> Iterator[None]:
        """End the block where `thing` cannot be imported, and note why."""
        try:
            yield
        except FailedBody:
            pass
        except (CompileError, GraphError, ImportModelError) as error:
            self.problems.add(thing, str(error), place)
        except self.damage as error:
            check_own(error, f"it read {thing} in {place}", *self.packages)
            reason = f"its inputs or attributes do not fit: {error}"
            self.problems.add(thing, reason, place)

    def tensor(self, known: Any) -> Any:
        """Add a compile-time value to the graph; return a tensor unchanged."""
        return constant(self.g, known) if isinstance(known, np.ndarray) else known

    def output(self, name: str, known: Any) -> Tensor | None:
        """Return a result of the model as a tensor, or note why it is none; None stays None."""
        with self.noting(f"output {name}", ""):
            result = self.tensor(known)
            if isinstance(result, Complex):
                raise Unsupported(self.complex_result)
            if result is not None and not isinstance(result, Tensor):
                raise Unsupported("it is no tensor")
            return result
        return None

    def name_outputs(self, outputs: Mapping[str, Tensor]) -> None:
        """Make tensors outputs of the graph, in the framework's order."""
        for name, tensor in outputs.items():
            self.g.output(name, framework_order(self.g, tensor))

    def check_result(
        self, result: Tensor | Complex, shape: Shape | None, dtype: DType | None, named: str
    ) -> None:
        """Compare what a rule built with the framework's shape and type, called `named` there."""
        own = "complex" if isinstance(result, Complex) else result.dtype.value
        fits = shape is None or result.shape == shape
        if not fits or (isinstance(result, Tensor) and result.dtype is not dtype):
            raise Unsupported(
                f"its result is {named} in {self.framework}, {own}{list(result.shape)} here"
            )


def constant(g: Builder, data: np.ndarray) -> Tensor:
    """Add a constant array of real numbers to the graph."""
    dtype = dtype_of(data)
    if not data.size:
        raise Unsupported(EMPTY)
    return plain(g.constant(data) if data.ndim else g.scalar(data.item(), dtype))


def complex_constant(g: Builder, data: np.ndarray) -> Complex:
    """Add a constant array of complex numbers to the graph."""
    parts = (data.real, data.imag)
    return Complex(*(constant(g, np.ascontiguousarray(part, np.float32)) for part in parts))
