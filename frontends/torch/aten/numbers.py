"""Python numbers read from tensors, as scalars of the graph without a gradient."""

import operator
from collections.abc import Callable
from typing import Any

import torch

from pockengine.compiler.ir import F32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit import Operand
from pockengine.frontends.layout import Tensor, reshape
from pockengine.frontends.torch.aten.elementwise import detach
from pockengine.frontends.torch.aten.registry import AtenContext, aten


@aten("item.default")
def item(ctx: AtenContext, x: Tensor) -> Tensor:
    """Read the only element of a tensor."""
    number = reshape(ctx.g, x, ())
    return detach(ctx, number) if number.dtype is F32 else number


def _by(op: str) -> Callable[..., Tensor]:
    return lambda g, *numbers: emit.arithmetic(g, op, *numbers)


def _negative(g: Builder, x: Operand) -> Tensor:
    return emit.arithmetic(g, "mul", x, -1)


def _as_float(g: Builder, x: Tensor) -> Tensor:
    return emit.cast(g, x, F32)


ON_NUMBERS: dict[Any, Callable[..., Tensor]] = {
    operator.add: _by("add"),
    operator.sub: _by("sub"),
    operator.mul: _by("mul"),
    operator.neg: _negative,
    torch.sym_float: _as_float,
    torch.sym_max: _by("maximum"),
    torch.sym_min: _by("minimum"),
}
"""Python operators on such numbers in a trace."""
