"""Floats of 16 bits, stored in f32 and rounded to the precision of their type."""

from pockengine.compiler.ir import F32, Builder, DType, Value
from pockengine.frontends import emit
from pockengine.frontends.emit.gradient import with_gradient
from pockengine.frontends.layout import Tensor


def rounded(g: Builder, x: Tensor, dtype: DType, *, forward: bool = True) -> Tensor:
    """Round floats to a narrower type; their cotangents too."""

    def formula(value: Value) -> Value:
        return g.cast(g.cast(value, dtype=dtype.value), dtype=F32.value)

    y = Tensor(formula(x.value), x.layout)
    if not forward or not emit.trains(g, x):
        return y
    return with_gradient(g, y, (x.value, formula))
