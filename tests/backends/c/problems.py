"""Nodes used by several tests, and hypothesis settings."""

from typing import Any

from hypothesis import Phase

from pockengine.compiler.ir import Node
from pockengine.compiler.ir.types import f32
from pockengine.tests.backends.c.harness import new_builder

SETTINGS: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "phases": [Phase.generate],
}
"""The same examples in every run, without shrinking, because each one compiles a program."""

DIRECT = 2e-6
"""Maximum error of a direct sum of a test's size, relative to the largest result."""


def matmul(
    m: int, n: int, k: int, transpose: tuple[bool, bool] = (False, False), batches: Any = ((), ())
) -> Node:
    """A product of `batches` pairs of matrices (m, k) and (k, n), transposed on request."""
    g = new_builder()
    a = g.input("a", f32(*batches[0], *((k, m) if transpose[0] else (m, k))))
    b = g.input("b", f32(*batches[1], *((n, k) if transpose[1] else (k, n))))
    return g.emit("matmul", a, b, transpose_a=transpose[0], transpose_b=transpose[1])


def convolution(
    x: tuple[int, int, int, int],
    w: tuple[int, int, int, int],
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> dict[str, Node]:
    """The forward node and both gradients of one geometry."""
    g = new_builder()
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    image, weights = g.input("x", f32(*x)), g.input("w", f32(*w))
    y = g.emit("conv2d", image, weights, **attrs)
    dy = g.input("dy", y.result.type)
    return {
        "forward": y,
        "dx": g.emit("conv2d_dx", dy, weights, input_shape=x, **attrs),
        "dw": g.emit("conv2d_dw", image, dy, weight_shape=w, **attrs),
    }
