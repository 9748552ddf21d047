"""The compared variants: f32, and int8 with and without QAS.

Int8 variants have folded batch norms, which train differently: without batch statistics and gains.
f32 with folded norms separates this effect from that of the integers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pockengine import Int8
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.quantize.fold_norms import fold_norms


@dataclass(frozen=True)
class Variant:
    """A variant by its name, and the factor of its rates.

    Without QAS an optimizer sees integers, which are some hundred times as large as the real
    weights, and gradients that are smaller by the same factor.
    """

    name: str
    integers: bool = True
    folded: bool = False
    gradients: str = "int8"
    qas: bool = True
    rates: tuple[float, ...] = (0.00125, 0.0025, 0.005, 0.01, 0.02)

    def graph(self, graph: Graph) -> Graph:
        """Return the graph to compile: the original, or a copy with folded norms."""
        if not self.folded:
            return graph
        copy = clone(graph)
        fold_norms(copy)
        return copy

    def quantize(self, samples: Mapping[str, np.ndarray]) -> Int8 | None:
        """Return the `quantize` argument of `pockengine.compile`."""
        if not self.integers:
            return None
        return Int8(samples, gradients=self.gradients, qas=self.qas)


VARIANTS = (
    Variant("f32", integers=False),
    Variant("f32, norms folded", integers=False, folded=True),
    Variant("int8"),
    Variant("int8, f32 gradients", gradients="f32"),
    Variant("int8 without QAS", qas=False, rates=(0.01, 0.04, 0.16, 2.5, 40.0)),
)
