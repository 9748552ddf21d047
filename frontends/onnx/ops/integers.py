"""The operator with which `quantized.py` replaces QuantizeLinear."""

from pockengine.frontends.emit.integers import clamped, rounded
from pockengine.frontends.layout import Tensor
from pockengine.frontends.onnx.ops.registry import OnnxContext, onnx_op

OWN_DOMAIN = "pockengine"
"""No file has operators of this domain."""


@onnx_op("Round", domain=OWN_DOMAIN)
def round_to_integers(
    ctx: OnnxContext, x: Tensor, *, scale: float, zero: int, integers: int
) -> Tensor:
    """Round to i8 of a range and back; only clamp to the range if integers are not requested."""
    if integers:
        return rounded(ctx.g, x, scale, zero, even=True)
    return clamped(ctx.g, x, scale, zero)
