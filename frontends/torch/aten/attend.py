"""Attention with its stats: the internal operator of `frontends/torch/attend.py`."""

import math

from pockengine.frontends.layout import Tensor, framework_order, plain
from pockengine.frontends.torch.aten.registry import AtenContext, aten


@aten("pockengine.attend.default")
def attend(
    ctx: AtenContext, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scale: float
) -> list[Tensor]:
    """Return y and stats of attention to the scores that `seen` marks."""
    operands = [framework_order(ctx.g, tensor) for tensor in (q, k, v, seen)]
    node = ctx.g.emit("attention", *operands, scale=scale, causal=False, hidden=-math.inf)
    return [plain(value) for value in node.results]
