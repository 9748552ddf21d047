"""Gradients that differ from our rules, defined by a framework or its user, as formulas."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod

from pockengine.compiler.ir import Builder, Shape, Value
from pockengine.compiler.ops.elementwise import reduce_to
from pockengine.compiler.ops.registry import lookup
from pockengine.frontends import emit
from pockengine.frontends.emit.signs import Sign, sign_of
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape

Formula = Callable[[Value], Value]
"""Maps a cotangent of the result, or a value, to the gradient; broadcasting is undone
afterwards.
"""


def with_gradient(g: Builder, y: Tensor, *formulas: tuple[Value, Formula]) -> Tensor:
    """Return y, whose gradient flows to these values, lying as y does, by formulas."""
    cotangent = g.cotangent(shape=y.value.shape)
    pairs = [part for x, rule in formulas for part in (x, reduce_to(g, rule(cotangent), x.shape))]
    return Tensor(g.emit("custom_gradient", y.value, cotangent, *pairs).result, y.layout)


def variable(g: Builder, x: Tensor) -> Tensor:
    """Return x as a separate value, with respect to which the model can take a derivative."""
    return with_gradient(g, x, (x.value, lambda dy: dy))


def zero_keeping(g: Builder, op: str, x: Tensor) -> Tensor:
    """Apply an op of one float; a cotangent of 0 stays 0 where the slope is infinite or NaN."""
    y = emit.unary(op)(g, x)
    node, rule = y.value.node, lookup(op).vjp_rule(0)
    if (
        node is None
        or rule is None
        or not emit.trains(g, x)
        or sign_of(g, x.value) is Sign.POSITIVE
    ):
        return y

    def formula(dy: Value) -> Value:
        zero = g.scalar(0.0)
        return g.where(g.eq(dy, zero), zero, rule(g, node, dy))

    return with_gradient(g, y, (x.value, formula))


def power(g: Builder, x: Tensor, exponent: Tensor, log: Formula) -> Tensor:
    """x^exponent with slopes of plain products, NaN where these are: b x^(b - 1) and y `log`(x).

    Our op's own slopes, as PyTorch's, are 0 at b = 0 and infinite at x = 0 with b < 0.
    """
    y = emit.elementwise(g, "pow", x, exponent)
    trained = emit.trains(g, x), emit.trains(g, exponent)
    known = g.graph.constants.get(exponent.value)
    same = known is not None and bool(known.all())
    if y.value.node is None or not any(trained) or (same and not trained[1]):
        return y
    a, b = y.value.node.operands

    def to_base(dy: Value) -> Value:
        return g.mul(dy, g.mul(b, g.pow(a, g.sub(b, g.scalar(1.0)))))

    def to_exponent(dy: Value) -> Value:
        return g.mul(dy, g.mul(log(a), y.value))

    return with_gradient(g, y, (a, to_base), (b, to_exponent))


class OwnGradient:
    """A function of several results whose gradient is a formula of all their cotangents.

    The results are one vector in the graph: a formula need not be linear in the cotangents, so they
    cannot be taken one by one.
    """

    def __init__(self, g: Builder, shapes: Sequence[Shape]) -> None:
        """Begin with the results' shapes; `cotangents` are placeholders of their cotangents."""
        self._g = g
        self._shapes = [tuple(shape) for shape in shapes]
        self._whole = g.cotangent(shape=(sum(map(prod, self._shapes)),))
        self.cotangents = self._cut(plain(self._whole))

    def results(
        self, results: Sequence[Tensor], pairs: Sequence[tuple[Tensor, Tensor]]
    ) -> list[Tensor]:
        """Return the results; for each pair (x, dx) the gradient of x is dx."""
        g = self._g
        lines = [reshape(g, result, (result.size,)) for result in results]
        whole = framework_order(g, emit.concat(g, lines, 0))
        values = [framework_order(g, tensor) for pair in pairs for tensor in pair]
        own = g.emit("custom_gradient", whole, self._whole, *values).result
        return self._cut(plain(own))

    def _cut(self, line: Tensor) -> list[Tensor]:
        """Cut a vector into tensors of the results' shapes."""
        ends = [0]
        for shape in self._shapes:
            ends.append(ends[-1] + prod(shape))
        return [
            reshape(self._g, emit.slice_dim(self._g, line, 0, start=start, stop=stop), shape)
            for (start, stop), shape in zip(pairwise(ends), self._shapes, strict=True)
        ]
