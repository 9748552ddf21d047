"""Rounding to the levels of integers while training, by the operators of PyTorch's observers."""

from pockengine.compiler.ir import F32
from pockengine.frontends import emit
from pockengine.frontends.emit import Operand
from pockengine.frontends.layout import Tensor, reshape
from pockengine.frontends.torch.aten.elementwise import detach
from pockengine.frontends.torch.aten.registry import AtenContext, aten


@aten("fake_quantize_per_tensor_affine.default", "fake_quantize_per_tensor_affine.tensor_qparams")
def fake_quantize(
    ctx: AtenContext, x: Tensor, scale: Operand, zero_point: Operand, quant_min: int, quant_max: int
) -> Tensor:
    """Round to one of the levels; the gradient is that of x, and 0 for clamped elements."""
    g = ctx.g
    size = scale if isinstance(scale, Tensor) else emit.scalar(g, scale, F32)
    zero = emit.cast(g, zero_point, F32) if isinstance(zero_point, Tensor) else float(zero_point)
    steps = emit.arithmetic(g, "mul", detach(ctx, x), emit.arithmetic(g, "div", 1.0, size))
    level = emit.arithmetic(g, "add", emit.unary("round")(g, steps), zero)
    low, high = float(quant_min), float(quant_max)
    clamped = emit.arithmetic(g, "minimum", emit.arithmetic(g, "maximum", level, low), high)
    near = emit.arithmetic(g, "mul", emit.arithmetic(g, "sub", clamped, zero), size)
    inside = emit.arithmetic(g, "eq", level, clamped)
    passed = emit.choose(g, inside, x, 0.0)
    moved = emit.arithmetic(g, "sub", passed, detach(ctx, passed))  # 0, with a gradient
    return emit.arithmetic(g, "add", detach(ctx, near), moved)


@aten("fake_quantize_per_channel_affine.default")
def fake_quantize_channels(
    ctx: AtenContext,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
) -> Tensor:
    """Quantize with a scale and a zero point for each index of a dimension."""
    line = tuple(size if dim == axis % x.rank else 1 for dim, size in enumerate(x.shape))
    sizes, zeros = (reshape(ctx.g, part, line) for part in (scale, zero_point))
    return fake_quantize(ctx, x, sizes, zero_point=zeros, quant_min=quant_min, quant_max=quant_max)
