"""Complex tensors as pairs of real ones, in our ops."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir import F32, Builder, Shape
from pockengine.frontends import emit
from pockengine.frontends.layout import Tensor


@dataclass(frozen=True, eq=False)
class Complex:
    """A complex tensor: two real ones of the same shape."""

    real: Tensor
    imag: Tensor

    @property
    def shape(self) -> Shape:
        """Shape as the framework sees it."""
        return self.real.shape


Operand = Complex | Tensor | complex


def as_complex(g: Builder, x: Operand) -> Complex:
    """Return a complex tensor unchanged, and a real one or a number with a zero imaginary part."""
    if isinstance(x, Complex):
        return x
    if isinstance(x, Tensor):
        real = emit.cast(g, x, F32)
        return Complex(real, emit.broadcast(g, emit.scalar(g, 0.0, F32), x.shape))
    number = complex(x)
    return Complex(emit.scalar(g, number.real, F32), emit.scalar(g, number.imag, F32))


def each(function: Callable[..., Tensor], *operands: Complex) -> Complex:
    """Apply a linear operation to the real and the imaginary part."""
    return Complex(
        function(*(x.real for x in operands)),
        function(*(x.imag for x in operands)),
    )


def joined(g: Builder, real: Tensor, imag: Tensor) -> Complex:
    """Join two real tensors."""
    shape = tuple(int(n) for n in np.broadcast_shapes(real.shape, imag.shape))
    return Complex(*(emit.broadcast(g, part, shape) for part in (real, imag)))


def choose(g: Builder, condition: Tensor, a: Operand, b: Operand) -> Complex:
    """a where the condition holds, else b."""
    pairs = as_complex(g, a), as_complex(g, b)
    return each(lambda x, y: emit.choose(g, condition, x, y), *pairs)


def linear_combination(g: Builder, a: Operand, b: Operand, factor: float) -> Complex:
    """a + factor b."""
    pairs = as_complex(g, a), as_complex(g, b)
    return each(lambda x, y: emit.arithmetic(g, "add", x, emit.weighted(g, y, factor)), *pairs)


def multiply(
    g: Builder, a: Operand, b: Operand, product: Callable[[Tensor, Tensor], Tensor] | None = None
) -> Complex:
    """Multiply element by element, or by a bilinear `product`."""
    times = product or (lambda x, y: emit.arithmetic(g, "mul", x, y))
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Complex) and not isinstance(other, (Complex, complex)):
            real = emit.same_dtype(g, (other, 0.0))[0]
            first = one is a
            return each(lambda x, y=real, f=first: times(x, y) if f else times(y, x), one)
    x, y = as_complex(g, a), as_complex(g, b)
    return Complex(
        emit.arithmetic(g, "sub", times(x.real, y.real), times(x.imag, y.imag)),
        emit.arithmetic(g, "add", times(x.real, y.imag), times(x.imag, y.real)),
    )


def conjugate(g: Builder, x: Operand) -> Complex:
    """Turn the imaginary part's sign."""
    x = as_complex(g, x)
    return Complex(x.real, emit.unary("neg")(g, x.imag))


def squared_size(g: Builder, x: Complex) -> Tensor:
    """|x|^2."""
    square = emit.unary("square")
    return emit.arithmetic(g, "add", square(g, x.real), square(g, x.imag))


def reciprocal(g: Builder, x: Complex) -> Complex:
    """1 / x."""
    size = squared_size(g, x)
    return each(lambda part: emit.arithmetic(g, "div", part, size), conjugate(g, x))


def divide(g: Builder, a: Operand, b: Operand) -> Complex:
    """a / b."""
    if isinstance(b, Complex):
        return multiply(g, a, reciprocal(g, b))
    if isinstance(b, complex):
        return multiply(g, a, 1 / b)
    return each(lambda part: emit.arithmetic(g, "div", part, b), as_complex(g, a))


def absolute(g: Builder, x: Complex) -> Tensor:
    """|x|, whose gradient at 0 is 0."""
    size = squared_size(g, x)
    zero = emit.arithmetic(g, "eq", size, 0.0)
    root = emit.unary("sqrt")(g, emit.choose(g, zero, 1.0, size))
    return emit.choose(g, zero, 0.0, root)


def polar(g: Builder, size: Tensor, angle: Tensor) -> Complex:
    """Size times (cos angle + i sin angle)."""
    return Complex(
        emit.arithmetic(g, "mul", size, emit.unary("cos")(g, angle)),
        emit.arithmetic(g, "mul", size, emit.unary("sin")(g, angle)),
    )


def exponential(g: Builder, x: Complex) -> Complex:
    """exp x."""
    return polar(g, emit.unary("exp")(g, x.real), x.imag)


def angle(g: Builder, x: Complex) -> Tensor:
    """Return the angle, from -pi to pi."""
    return emit.elementwise(g, "atan2", x.imag, x.real)


def equal(g: Builder, a: Operand, b: Operand) -> Tensor:
    """Whether both parts are equal."""
    pairs = as_complex(g, a), as_complex(g, b)
    both = each(lambda x, y: emit.elementwise(g, "eq", x, y), *pairs)
    return emit.elementwise(g, "logical_and", both.real, both.imag)


UNARY: dict[str, Callable[[Builder, Complex], Complex | Tensor]] = {
    "abs": absolute,
    "angle": angle,
    "conj": conjugate,
    "exp": exponential,
    "imag": lambda g, x: x.imag,
    "real": lambda g, x: x.real,
    "reciprocal": reciprocal,
    "square": lambda g, x: multiply(g, x, x),
}
"""Functions of one complex tensor; the frontends have the names of their operators."""

BINARY: dict[str, Callable[[Builder, Operand, Operand], Complex | Tensor]] = {
    "add": lambda g, a, b: linear_combination(g, a, b, 1.0),
    "sub": lambda g, a, b: linear_combination(g, a, b, -1.0),
    "mul": multiply,
    "div": divide,
    "eq": equal,
}
"""Functions of two operands, of which one is complex."""
