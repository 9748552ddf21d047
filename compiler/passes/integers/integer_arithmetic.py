"""Lower arithmetic on dequantized numbers to arithmetic on the integers themselves.

A quantized graph computes `quantize(conv2d(dequantize(q), dequantize(w)) + b)`. Here products take
the integers and sum in i32, biases are added to the sums as i32, and results are rescaled by a
fixed-point multiplier; a sum of two quantized tensors is a sum of rescaled integers. Ops that only
move elements move the integers. Everything else stays real, between a `dequantize` and a
`quantize`.

In the backward pass cotangents are real numbers, or with `gradients="int8"` i8 in products with
integers: each is divided by its largest magnitude / 127, which is found at run time. A product
whose i32 sums could overflow multiplies integers by real numbers instead.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pockengine.compiler.integers import FIXED, ROUNDINGS
from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import LOSS, Graph, Node, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ir.types import I32, DType
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.cleanup.dead_code import DeadCode
from pockengine.compiler.passes.integers.integer_activations import rectified, slopes_of
from pockengine.compiler.passes.integers.integer_products import (
    LARGEST_SUM,
    MOST_TERMS,
    by_one_matrix,
    exact_sums,
    is_linear,
    keeps_channels,
    largest_sum,
    multiplied,
    scale_axis,
    terms,
)
from pockengine.compiler.passes.integers.integer_rescale import rescaled_by, rescaled_once
from pockengine.compiler.passes.integers.integer_values import Real, centered, dequantized, real_of
from pockengine.compiler.passes.integers.integer_windows import (
    axis_sums,
    divided,
    divided_by,
    window_sums,
)
from pockengine.compiler.passes.option_types import OneOf

GRADIENTS = ("f32", "int8")

HEADROOM = 20
"""Bits by which summands are shifted left before rescaling, as in TensorFlow Lite."""

SQUARED_HEADROOM = 7
"""The same for a difference that is squared."""

SMALLEST = 1e-30
"""Minimum divisor, for a cotangent that is all zeros."""


@dataclass(frozen=True)
class IntegerArithmetic(Pass):
    """Compute with integers where possible; see the module docstring.

    `rounding` is as in `Integers`.

    Requires: params held as integers. Leaves: a `dequantize` only where real numbers are needed.
    """

    gradients: Annotated[str, OneOf(GRADIENTS)] = "f32"
    rounding: Annotated[str, OneOf(ROUNDINGS)] = FIXED

    def run(self, graph: Graph) -> None:
        rewrite(graph, _Lowering(graph, self.gradients, self.rounding).rule)
        DeadCode().run(graph)


@dataclass(frozen=True)
class _Sums:
    """Exact i32 sums and their scale; `once` if TensorFlow Lite rounds them once."""

    integers: Value
    scale: np.ndarray
    once: bool = False


@dataclass(frozen=True)
class _Rounded:
    """A cotangent as i8: `integers` times `scale`, divided by `factor` if there is one."""

    integers: Value
    scale: Value
    factor: np.ndarray | None


class _Lowering:
    """State of one run: exact scales of i32 sums, and cotangents already rounded to integers."""

    def __init__(self, graph: Graph, gradients: str, rounding: str) -> None:
        self.graph = graph
        self.rounding = rounding
        self.gradients = gradients
        self.exact: dict[Value, np.ndarray] = {}
        self.rounded: dict[Value, _Rounded] = {}
        self.loss = graph.outputs.get(LOSS)
        self.backward = False

    def rule(self, g: Builder, node: Node) -> tuple[Value, ...] | None:
        """Return a node's replacement, if it can compute with integers."""
        found = None
        if lookup(node.op).product:
            found = self._product(g, node)
        elif node.op == "quantize":
            found = self._quantize(g, node)
        elif lookup(node.op).copies and len(node.operands) == 1 and "value" not in node.attrs:
            found = self._move(g, node)
        self.backward = self.backward or self.loss in node.results
        return None if found is None else (found,)

    def _number(self, scale: Value) -> np.ndarray | None:
        """A scale in double precision, if it is constant."""
        data = self.graph.constants.get(scale)
        return None if data is None else data.astype(np.float64)

    def _move(self, g: Builder, node: Node) -> Value | None:
        """Move integers with a single scale instead of the dequantized numbers."""
        real = real_of(node.operands[0])
        if real is None or real.scale.shape:
            return None
        moved = g.emit(node.op, real.integers, **node.attrs).result
        return g.dequantize(moved, real.scale, zero=real.zero)

    def _product(self, g: Builder, node: Node) -> Value | None:
        """Multiply the integers of one operand or of both."""
        first, second = (real_of(operand) for operand in node.operands)
        pair = [(place, real) for place, real in enumerate((first, second)) if real is not None]
        meets = [scale_axis(node, place, real.scale) for place, real in pair]
        if not pair or None in meets:
            return None
        if first is not None and second is not None:
            return self._sums(g, node, (first, second), meets)
        if not by_one_matrix(node):
            return None
        rounded = self.backward and self.gradients == "int8" and terms(node) <= MOST_TERMS
        build = self._rounded_product if rounded else self._mixed_product
        return build(g, node, pair[0], meets[0] == "inner")

    def _sums(
        self, g: Builder, node: Node, reals: tuple[Real, Real], meets: list[str | None]
    ) -> Value | None:
        """Sum in i32; None if a scale is unknown or varies along the sum, or sums could
        overflow.
        """
        one, other = (self._number(real.scale) for real in reals)
        if one is None or other is None or "inner" in meets or terms(node) > MOST_TERMS:
            return None
        pair = ((real.integers, real.zero) for real in reals)
        whole = by_one_matrix(node)
        sums = multiplied(g, node, *pair) if whole else exact_sums(g, node, reals)
        if sums is None:
            return None
        exact = self.exact[sums] = np.squeeze(one.reshape(-1) * other.reshape(-1))
        return g.dequantize(sums, g.constant(exact.astype(np.float32)))

    def _mixed_product(
        self, g: Builder, node: Node, integers: tuple[int, Real], inner: bool
    ) -> Value:
        """Multiply integers by real numbers, with the scale applied before or after."""
        place, real = integers
        other = node.operands[1 - place]
        scale = real.scale
        if scale.shape:
            scale = g.reshape(scale, shape=(scale.type.size,))
        pair = [(g.mul(other, scale) if inner else other, 0), (real.integers, real.zero)]
        product = multiplied(g, node, *(pair if place else reversed(pair)))
        return product if inner else g.mul(product, scale)

    def _rounded_product(
        self, g: Builder, node: Node, integers: tuple[int, Real], inner: bool
    ) -> Value:
        """Multiply integers by a cotangent, rounded to integers first."""
        place, real = integers
        factor = self._number(real.scale) if inner else None
        cotangent, kept = node.operands[1 - place], keeps_channels(node, 1 - place)
        rounded = self._round(g, cotangent, factor, kept)
        pair = [(rounded.integers, 0), (real.integers, real.zero)]
        sums = multiplied(g, node, *(pair if place else reversed(pair)))
        if inner:
            return g.dequantize(sums, rounded.scale)
        scale = g.mul(rounded.scale, real.scale)
        if rounded.factor is not None:  # along the axis of the result that is the cotangent's
            ones = (1,) * (place and node.op in ("matmul", "conv2d_dw"))
            scale = g.mul(g.constant((1 / rounded.factor).reshape(-1, *ones).astype("f4")), scale)
        return g.dequantize(sums, scale)

    def _round(
        self, g: Builder, cotangent: Value, factor: np.ndarray | None, kept: bool
    ) -> _Rounded:
        """Return a cotangent times a factor per channel as i8.

        A product with `kept` channels accepts any factor, so a layer's two gradients share one i8
        tensor.
        """
        known = self.rounded.get(cotangent)
        if known is not None and (kept or factor is known.factor is None):
            return known
        rank = len(cotangent.shape)
        # The maximum per channel, then of all: the products by factors need not be materialized.
        largest = g.reduce_max(
            g.abs(cotangent), axes=tuple(range(rank - 1 if factor is not None else rank))
        )
        factors = None if factor is None else g.constant(factor.reshape(-1).astype(np.float32))
        if factors is not None:
            largest = g.reduce_max(g.mul(largest, factors), axes=(0,))
        scale = g.maximum(g.mul(largest, g.scalar(1 / 127)), g.scalar(SMALLEST))
        # Dividing each number would take 0.7 of the time on a Cortex-A72.
        unit = g.reciprocal(scale)
        units = g.mul(cotangent, unit if factors is None else g.mul(factors, unit))
        made = _Rounded(g.quantize(units, g.scalar(1.0), low=-127), scale, factor)
        self.rounded[cotangent] = made
        return made

    def _quantize(self, g: Builder, node: Node) -> Value | None:
        """Rescale integers to another scale, if the real numbers come from integers."""
        real, scale = node.operands
        target = self._number(scale)
        if target is None or target.ndim or node.attrs["dtype"] != DType.I8.value:
            return None
        if self.rounding != FIXED:
            return self._by_one_factor(g, node, target)
        rescaled = (
            self._rescaled_sums(g, real, target)
            or self._rescaled(g, node, target)
            or self._added(g, real, target)
            or self._product_of(g, real, target)
            or self._averaged(g, node, target)
            or self._rectified(g, real, target)
        )
        if rescaled is None or rescaled.dtype is DType.I8:
            return rescaled
        return g.narrow(rescaled, **{name: node.attrs[name] for name in ("zero", "low", "high")})

    def _by_one_factor(self, g: Builder, node: Node, target: np.ndarray) -> Value | None:
        """Rescale a product's sums by one f32 factor and round."""
        value = node.operands[0]
        summed = self._biased_sums(g, value) or self._averaged_sums(g, value)
        if summed is None:
            known = self._summand(node.operands[0])
            same = known is not None and known[1] == target and known[0].zero == node.attrs["zero"]
            whole = (node.attrs["low"], node.attrs["high"]) == (-128, 127)
            return known[0].integers if known is not None and same and whole else None
        factor = summed.scale.astype(np.float32) / np.float32(target)
        real = g.dequantize(
            summed.integers, g.constant(factor) if factor.ndim else g.scalar(float(factor))
        )
        return g.quantize(real, g.scalar(1.0), **node.attrs)

    def _rescaled_sums(self, g: Builder, real: Value, target: np.ndarray) -> Value | None:
        """Rescale a product's sums, with or without a bias per channel."""
        summed = self._biased_sums(g, real)
        if summed is None:
            return None
        rescale = rescaled_once if summed.once else rescaled_by
        return rescale(g, summed.integers, summed.scale / target)

    def _biased_sums(self, g: Builder, real: Value) -> _Sums | None:
        """Return a product's sums with their bias."""
        summands = real.node.operands if real.node and real.node.op == "add" else (real,)
        sums = [value for value in map(dequantized, summands) if value in self.exact]
        if len(sums) != 1:
            return None
        (total,), biases = sums, [v for v in summands if dequantized(v) not in self.exact]
        exact, product = self.exact[total], total.node
        assert product is not None
        if biases:
            (bias,) = biases
            if not bias.type.size == bias.shape[-1:][0] == total.shape[-1]:
                return None
            room = LARGEST_SUM - largest_sum(product)
            flat = bias if len(bias.shape) == 1 else g.reshape(bias, shape=bias.shape[-1:])
            unit = g.constant(exact.astype(np.float32))
            total = g.add(total, g.quantize(flat, unit, low=-room, high=room, dtype=I32.value))
        return _Sums(total, exact, once=is_linear(product))

    def _rescaled(self, g: Builder, node: Node, target: np.ndarray) -> Value | None:
        """Rescale integers to another scale; unchanged if the scales are equal."""
        known = self._summand(node.operands[0])
        if known is None:
            return None
        real, scale = known
        limits = (node.attrs["zero"], node.attrs["low"], node.attrs["high"])
        if scale == target and limits == (real.zero, -128, 127):
            return real.integers
        return rescaled_by(g, centered(g, real), scale / target)

    def _added(self, g: Builder, real: Value, target: np.ndarray) -> Value | None:
        """Add or subtract integers of two scales, each rescaled to twice the larger one.

        Or square their difference, with less headroom: SQUARED_DIFFERENCE.
        """
        difference = _squared(real)
        node, headroom = real.node, HEADROOM
        if difference is not None:
            node, headroom = difference.node, SQUARED_HEADROOM
        if node is None or node.op not in ("add", "sub"):
            return None
        pair = [self._summand(value) for value in node.operands]
        known = [each for each in pair if each is not None]
        if len(known) != 2:
            return None
        unit = 2 * max(scale for _, scale in known)
        shift = g.scalar(1 << headroom, I32)
        shifted = [(g.mul(centered(g, each), shift), scale) for each, scale in known]
        first, second = (
            rescaled_by(g, summand, np.array(scale / unit)) for summand, scale in shifted
        )
        total = g.emit(node.op, first, second).result
        unit /= 1 << headroom
        if difference is not None:
            total, unit = g.mul(total, total), unit * unit
        return rescaled_by(g, total, unit / target)

    def _averaged(self, g: Builder, node: Node, target: np.ndarray) -> Value | None:
        """Sum the integers of each window; also return the op that averages them."""
        mean = node.operands[0].node
        known = None if mean is None else self._summand(mean.operands[0])
        if mean is None or known is None:
            return None
        real, scale = known
        pool = mean.op == "avg_pool2d"
        if pool and not (scale == target and real.zero == node.attrs["zero"]):
            return None
        summed = window_sums(g, mean, real.integers, 0 if pool else real.zero)
        summed = summed or axis_sums(g, mean, real)
        if summed is None:
            return None
        total, count = summed
        limits = {name: node.attrs[name] for name in ("low", "high")}
        if pool:  # equal ranges: the integers themselves are averaged
            return g.narrow(divided(g, total, count), zero=0, **limits)
        return divided_by(g, total, scale / float(target), int(count))

    def _averaged_sums(self, g: Builder, real: Value) -> _Sums | None:
        """Return the sums of an average's windows."""
        mean = real.node
        known = None if mean is None else self._summand(mean.operands[0])
        if mean is None or known is None:
            return None
        summed = window_sums(g, mean, known[0].integers, known[0].zero)
        if summed is None or summed[1].ndim:
            return None
        return _Sums(summed[0], known[1] / summed[1])

    def _rectified(self, g: Builder, real: Value, target: np.ndarray) -> Value | None:
        """Rescale integers below zero by another factor: a leaky ReLU."""
        factors = slopes_of(real)
        x = None if factors is None else self._summand(factors[0])
        if factors is None or x is None:
            return None
        number = self.graph.constants.get(factors[1])
        slope = self._summand(factors[1]) if number is None else number
        return None if slope is None else rectified(g, x, slope, target)

    def _product_of(self, g: Builder, real: Value, target: np.ndarray) -> Value | None:
        """Multiply integers of two scales elementwise; TFLite computes the factor in f32."""
        node = real.node
        if node is None or node.op != "mul":
            return None
        one, other = (self._summand(value) for value in node.operands)
        if one is None or other is None:
            return None
        product = g.mul(centered(g, one[0]), centered(g, other[0]))
        factor = np.float32(one[1]) * np.float32(other[1]) / np.float32(target)
        return rescaled_by(g, product, np.array(factor))

    def _summand(self, value: Value) -> tuple[Real, float] | None:
        """Return integers with their scale, if that is one constant number."""
        real = real_of(value)
        scale = None if real is None else self._number(real.scale)
        return None if real is None or scale is None or scale.ndim else (real, float(scale))


def _squared(value: Value) -> Value | None:
    """Return the difference that a value is the square of."""
    node = value.node
    if node is None or node.op not in ("square", "mul") or len(set(node.operands)) != 1:
        return None
    inner = node.operands[0].node
    return node.operands[0] if inner is not None and inner.op == "sub" else None
