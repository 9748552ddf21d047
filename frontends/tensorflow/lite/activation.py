"""Activations that TFLite's operators carry along."""

from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor
from pockengine.frontends.tensorflow.ops import RULES, TfContext


def activated(ctx: TfContext, y: Tensor, kind: int) -> Tensor:
    """Apply the activation that an operator carries along, by its number in the schema."""
    named = {0: None, 1: "Relu", 3: "Relu6", 4: "Tanh"}
    if kind == 2:
        return Tensor(ctx.g.hardtanh(y.value, min=-1.0, max=1.0), y.layout)
    if kind not in named:
        raise Unsupported(f"the fused activation {kind}")
    name = named[kind]
    return y if name is None else RULES[name].apply(ctx, y)
