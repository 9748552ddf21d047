"""The operator that `quantized.py` puts in place of QuantizeLinear."""

from pockengine.frontends.emit.integers import clamped, rounded
from pockengine.frontends.layout import Tensor
from pockengine.frontends.onnx.ops.registry import OnnxContext, onnx_op

OWN_DOMAIN = "pockengine"
"""No file has operators of this domain: they would have no rule but this."""


@onnx_op("Round", domain=OWN_DOMAIN)
def round_to_integers(
    ctx: OnnxContext, x: Tensor, *, scale: float, zero: int, integers: int
) -> Tensor:
    """Round to i8 of a range and back; or only clamp to the range, where integers are not asked."""
    if integers:
        return rounded(ctx.g, x, scale, zero, even=True)
    return clamped(ctx.g, x, scale, zero)
