"""The operator with which `quantized.py` replaces a quantize and its dequantize."""

from pockengine.frontends.emit.integers import rounded
from pockengine.frontends.layout import Tensor
from pockengine.frontends.torch.aten.registry import AtenContext, aten


@aten("pockengine.rounded.default")
def round_to_integers(
    ctx: AtenContext, x: Tensor, scale: float, zero: int, low: int, high: int
) -> Tensor:
    """Round to i8 of a range, and back."""
    return rounded(ctx.g, x, scale, zero, even=True, limits=(low, high))
