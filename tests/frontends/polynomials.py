"""An example of an external frontend: polynomials, fitted by least squares."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.frontends.frontend import Arrays, Frontend
from pockengine.frontends.registry import FrontendEntry


@dataclass(frozen=True)
class Polynomial:
    """A model: y = c0 + c1 x + c2 x^2 + ..."""

    coefficients: tuple[float, ...]


class PolynomialFrontend(Frontend):
    """Imports polynomials; example inputs are x and y."""

    framework = "Polynomials"

    def recognizes(self, model: Any) -> bool:
        return isinstance(model, Polynomial)

    def graph(self, model: Polynomial, inputs: Any, loss: Any) -> Graph:
        g = Builder(Graph("polynomial"))
        x, y = (g.input(name, TensorType(F32, inputs[0].shape)) for name in "xy")
        powers = [g.mul(x, x)] if len(model.coefficients) > 2 else []
        terms = zip(model.coefficients[1:], [x, *powers], strict=True)
        total = g.param("c0", np.full(1, model.coefficients[0], np.float32))
        for place, (coefficient, power) in enumerate(terms, 1):
            factor = g.param(f"c{place}", np.full(1, coefficient, np.float32))
            total = g.add(g.mul(factor, power), total)
        g.output("loss", g.reduce_mean(g.square(g.sub(total, y)), axes=(0,), keepdims=False))
        return g.graph

    def tuned(self, model: Polynomial, inputs: Any, graph: Graph, values: Arrays) -> Polynomial:
        return Polynomial(tuple(float(values[name][0]) for name in sorted(values)))


FRONTEND = PolynomialFrontend()
ENTRY = FrontendEntry("Polynomials", __name__, (__name__,))
