"""DoRA: a LoRA adapter whose outputs have trained magnitudes (Liu et al., 2024; arXiv:2402.09353).

    y = m / n (x W + s (x A) B)       m [out] is trained, and starts at |W|
    n^2 = |W|^2 + 2 s sum((A^T W) B) + s^2 sum((A^T A B) B)

n, the norm of W + s A B of each output, is a constant of the backward pass, as in PEFT. Its sums
run over the rank: neither W + s A B nor A B is materialized.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.contents import Contents
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.scalars import numbers_of
from pockengine.compiler.ir.types import F32, TensorType


@dataclass(frozen=True)
class Norms(Contents):
    """The norms of a matrix along an axis, or their squares."""

    matrix: Contents
    axis: int
    squared: bool
    type: TensorType = field(init=False)

    def __post_init__(self) -> None:
        size = self.matrix.type.shape[1 - self.axis]
        object.__setattr__(self, "type", TensorType(F32, (size,)))

    @property
    def known(self) -> bool:
        """Whether the matrix is available."""
        return self.matrix.known

    def read(self) -> np.ndarray:
        """Read the matrix; GraphError if there is nothing to read."""
        squares = np.square(numbers_of(self.matrix.read()), dtype=np.float64).sum(axis=self.axis)
        norms: np.ndarray = squares if self.squared else np.sqrt(squares)
        return norms.astype(np.float32)


def use_stored(graph: Graph, stored: Mapping[Contents, Contents]) -> None:
    """Take the norms of weights as they are stored: `stored` maps contents to decoded contents."""
    for param in list(graph.params.values()):
        norms = param.contents
        if isinstance(norms, Norms) and norms.known and norms.matrix in stored:
            new = replace(norms, matrix=stored[norms.matrix])
            graph.params[param.name] = replace(param, contents=new)


@dataclass(frozen=True)
class Magnitudes:
    """The values that rescale a layer's outputs: m and |W|^2."""

    magnitude: Value
    squares: Value

    def rescaled(
        self, g: Builder, node: Node, factors: tuple[Value, Value, float], y: Value
    ) -> Value:
        """Return m / n times the layer's output with its product."""
        a, b, scale = factors
        flipped = node.attrs["transpose_b"]
        rows = g.matmul(a, node.operands[1], transpose_a=True, transpose_b=flipped)
        own = g.matmul(g.matmul(a, a, transpose_a=True), b)
        sums = g.add(
            g.mul(rows, g.scalar(2 * scale)),
            g.mul(own, g.scalar(scale * scale)),
        )
        added = g.reduce_sum(g.mul(sums, b), axes=(0,))
        norm = g.sqrt(g.maximum(g.add(self.squares, added), g.scalar(float(np.finfo("f4").tiny))))
        return g.mul(y, g.div(self.magnitude, g.stop_gradient(norm)))


def rescaled_weight(weight: np.ndarray, magnitude: np.ndarray) -> np.ndarray:
    """Return a matrix [in, out] whose columns have these norms."""
    norms = np.maximum(np.linalg.norm(weight, axis=0), np.finfo("f4").tiny)
    whole: np.ndarray = weight * (magnitude / norms)
    return whole


def refusal(
    shape: Sequence[int], readers: Sequence[tuple[Node, Value]], weight: Value
) -> str | None:
    """Return why a weight cannot have magnitudes, or None."""
    if len(shape) != 2:
        return "DoRA is for linear layers"
    if any(value is not weight for _, value in readers):
        return "DoRA is for whole weights, and a slice of it is read"
    if len({node.attrs["transpose_b"] for node, _ in readers}) > 1:
        return "DoRA is for one layer, and it is read transposed too"
    return None
