"""Random int8 products with their epilogues, drawn by hypothesis, and ops on quantized numbers."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pockengine.backends.c.backend import FUSION
from pockengine.compiler.ir import F32, I32, Builder, DType, Graph, Node, TensorType
from pockengine.compiler.ops.quantized import fixed_point
from pockengine.compiler.passes.kernels.fuse import Fuse
from pockengine.compiler.target import Target

I8 = DType.I8


@st.composite
def products(draw: st.DrawFn) -> tuple[Node, dict[str, np.ndarray]]:
    """Draw a product, possibly with the epilogue of a quantized layer, and its operands."""
    integer = lambda least, most: draw(st.integers(least, most))  # noqa: E731
    rng = np.random.default_rng(integer(0, 2**31))
    kernel, gap = (integer(1, 3), integer(1, 3)), (integer(1, 2), integer(1, 2))
    stride, padding = (integer(1, 2), integer(1, 2)), tuple(integer(0, 2) for _ in range(4))
    size = tuple((k - 1) * d + integer(1, 9) for k, d in zip(kernel, gap, strict=True))
    channels, depthwise = integer(1, 40), draw(st.booleans())
    features, groups = (channels, channels) if depthwise else (integer(1, 70), 1)
    attrs: dict[str, Any] = {"stride": stride, "dilation": gap, "groups": groups}
    attrs["padding"] = padding
    if draw(st.booleans()) and not depthwise:  # a matrix product
        kernel, attrs = (1, 1), {}
    x, w = (integer(1, 2), *size, channels), (*kernel, channels // groups, features)
    g = Builder(Graph("product"))
    y = g.conv2d(g.input("f", TensorType(F32, x)), g.input("h", TensorType(F32, w)), **attrs)
    op, zero = draw(st.sampled_from(["conv2d", "conv2d_dx", "conv2d_dw"])), integer(-128, 127)
    shapes = {"conv2d": (x, w), "conv2d_dx": (y.shape, w), "conv2d_dw": (x, y.shape)}[op]
    pair = [g.input(name, TensorType(I8, shape)) for name, shape in zip("xw", shapes, strict=True)]
    more = {"conv2d": {}, "conv2d_dx": {"input_shape": x}, "conv2d_dw": {"weight_shape": w}}[op]
    zeros = (zero, 0)
    known = {"x": _bytes(rng, shapes[0], integer(0, 2)), "w": _bytes(rng, shapes[1], integer(0, 2))}
    made = Graph("made", inputs=pair)
    node = Builder(made).emit(op, *pair, zeros=zeros, **attrs, **more)
    if op != "conv2d_dw" and draw(st.booleans()):
        return _requantized(node, rng, known)
    return node, known


def _bytes(rng: np.random.Generator, shape: tuple[int, ...], kind: int) -> np.ndarray:
    """Bytes from the whole range, only its ends, or without the minimum."""
    if kind == 1:
        return rng.choice(np.array([-128, 127], np.int8), shape)
    return rng.integers(-127 if kind else -128, 127, shape, np.int8, endpoint=True)


def _requantized(
    node: Node, rng: np.random.Generator, known: Mapping[str, np.ndarray]
) -> tuple[Node, dict[str, np.ndarray]]:
    """Add a bias, rescale and narrow the sums of a convolution, plain or transposed."""
    graph = Graph("fused", inputs=list(node.operands), nodes=[node])
    g, features = Builder(graph), node.result.shape[-1]
    bias, multiplier, exponent = (
        g.input(name, TensorType(I32, (features,))) for name in ("b", "multiplier", "exponent")
    )
    down = bool(rng.integers(2))
    factors = np.exp(rng.uniform(np.log(1e-6), np.log(0.49 if down else 3.0), features))
    once = bool(rng.integers(2))
    sums = g.rescale(g.add(node.result, bias), multiplier, exponent, down=down, once=once)
    low, zero, high = (int(n) for n in np.sort(rng.integers(-128, 127, 3, endpoint=True)))
    g.output("y", g.narrow(sums, zero=zero, low=low, high=high))
    Fuse(Target(FUSION)).run(graph)
    found = dict(zip(("multiplier", "exponent"), fixed_point(factors), strict=True))
    found["b"] = rng.integers(-(2**16), 2**16, features).astype(np.int32)
    return graph.nodes[-1], {**known, **found}


def rescalings() -> list[tuple[Node, dict[str, np.ndarray]]]:
    """Every form of `rescale`, of sums whose products are halves and near halves, and others."""
    rng, made = np.random.default_rng(0), []
    for down, once in itertools.product((False, True), repeat=2):
        g = Builder(Graph("rescale"))
        x, *fixed = (
            g.input(name, TensorType(I32, shape))
            for name, shape in (("i", (40, 37)), ("multiplier", (37,)), ("exponent", (37,)))
        )
        factors = np.exp2(rng.uniform(-20, -1.01 if down else 3, 37))
        factors[:6] = np.exp2([-2, -3, -5, -8, -12, -19])
        factors[6:9] = 0.3 if down else [0.5, 1, 2]
        halves = (rng.integers(-300, 300, (40, 37)) + 0.5) / factors
        sums = np.floor(halves + rng.integers(-1, 2, halves.shape)).astype(np.int32)
        sums[:4] = [[2**27], [-(2**27)], [0], [-1]]
        if down:
            sums[:2] = [[2**31 - 1], [-(2**31)]]
        known = dict(zip(("multiplier", "exponent"), fixed_point(factors), strict=True))
        made.append((g.emit("rescale", x, *fixed, down=down, once=once), {"i": sums, **known}))
    return made


def elementwise_nodes() -> list[Node]:
    """Every elementwise op on quantized numbers."""
    g = Builder(Graph("elementwise"))
    x, scale = g.input("x", TensorType(F32, (5, 37))), g.input("s", TensorType(F32, (37,)))
    q, sums = g.input("q", TensorType(I8, (5, 37))), g.input("i", TensorType(I32, (5, 37)))
    return [
        g.emit("quantize", x, scale, zero=-4, low=-100),
        g.emit("quantize", x, g.input("one", TensorType(F32, ())), dtype="i32"),
        g.emit("dequantize", q, scale, zero=11),
        g.emit("dequantize", sums, scale),
        g.emit("narrow", sums, zero=100, low=-90, high=120),
        g.emit("unclamped", q, low=-70, high=9),
        g.emit("cast", q, dtype="i32"),
    ]
