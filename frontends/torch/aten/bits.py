"""ATen operators on the bits of integers, and on booleans as single bits."""

from pockengine.compiler.ir import BOOL, F32
from pockengine.frontends import emit
from pockengine.frontends.emit import Operand, bits
from pockengine.frontends.emit.meanings import emitter
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor
from pockengine.frontends.torch.aten.registry import AtenContext, aten

KINDS = ("Tensor", "Scalar")


def _define_bitwise(name: str) -> None:
    of_masks = emitter(f"logical_{name}")
    operators = (f"__{name}__", f"__i{name}__")

    @aten(f"bitwise_{name}.Tensor", *(f"{op}.{kind}" for op in operators for kind in KINDS))
    def rule(ctx: AtenContext, x: Tensor, other: Operand) -> Tensor:
        if ctx.dtype is BOOL:
            return of_masks(ctx.g, *emit.same_dtype(ctx.g, (x, other)))
        return _of_one_type(ctx, f"bit_{name}", x, other)


for _name in ("and", "or", "xor"):
    _define_bitwise(_name)


def _define_shift(name: str, op: str) -> None:
    operators = (f"__{name}shift__", f"__i{name}shift__")
    full = {"l": "left", "r": "right"}[name]

    @aten(
        f"bitwise_{full}_shift.Tensor",
        f"bitwise_{full}_shift.Tensor_Scalar",
        *(f"{op}.{kind}" for op in operators for kind in KINDS),
    )
    def rule(ctx: AtenContext, x: Tensor, other: Operand) -> Tensor:
        if ctx.dtype is F32:
            raise Unsupported("a shift of floats; multiply by a power of two")
        return _of_one_type(ctx, op, x, other)


_define_shift("l", "shift_left")
_define_shift("r", "shift_right")


@aten("bitwise_not.default")
def bitwise_not(ctx: AtenContext, x: Tensor) -> Tensor:
    """Turn each bit, or a mask, around."""
    return emit.unary("logical_not")(ctx.g, x) if x.dtype is BOOL else bits.inverted(ctx.g, x)


def _of_one_type(ctx: AtenContext, op: str, x: Operand, other: Operand) -> Tensor:
    """Compute in PyTorch's result type."""
    assert ctx.dtype is not None
    operands = [
        emit.cast(ctx.g, value, ctx.dtype)
        if isinstance(value, Tensor)
        else emit.scalar(ctx.g, int(value), ctx.dtype)
        for value in (x, other)
    ]
    return emit.elementwise(ctx.g, op, *operands)
