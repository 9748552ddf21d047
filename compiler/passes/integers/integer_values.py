"""Values of a graph that are dequantized i8."""

from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Value
from pockengine.compiler.ir.types import I32, DType


@dataclass(frozen=True)
class Real:
    """A value made by `dequantize`: its integers, scale and zero point."""

    integers: Value
    scale: Value
    zero: int


def real_of(value: Value) -> Real | None:
    """Return the i8 from which a value is dequantized."""
    integers = dequantized(value)
    if integers is None or integers.dtype is not DType.I8:
        return None
    assert value.node is not None
    return Real(integers, value.node.operands[1], value.node.attrs["zero"])


def dequantized(value: Value) -> Value | None:
    """Return the integers from which a value is dequantized."""
    node = value.node
    return node.operands[0] if node is not None and node.op == "dequantize" else None


def centered(g: Builder, real: Real) -> Value:
    """Return i8 as i32 minus the zero point."""
    integers = g.cast(real.integers, dtype=I32.value)
    return g.sub(integers, g.scalar(real.zero, I32)) if real.zero else integers
