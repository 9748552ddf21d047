"""Recognize running averages of a norm's statistics."""

from pockengine.compiler.ir import Value
from pockengine.compiler.ir.graph import Node
from pockengine.frontends.idioms.finder import STOPPING, Finder, core

EXACT = 1e-4
"""A weight of the value is 1 - that of the state when no further off, in f32."""


def running_average(finder: Finder, node: Node) -> bool:
    """Turn state = a state + b value, with 0 < a < 1, into an `ema_update`.

    Of a norm's own statistic a may be 0 or 1: evaluation reads the state in its place.
    """
    state, new = node.operands
    weights: dict[Value, float] = {}
    for weight, part in finder.linear(core(new, STOPPING)):
        weights[part] = weights.get(part, 0.0) + weight
    share = weights.pop(state, 0.0)
    if len(weights) != 1:
        return False
    ((value, weight),) = weights.items()
    own = finder.statistics.get(core(value))
    stays = own is not None and (share, weight) == (1.0, 0.0)
    follows = own is not None and share == 0
    value = value if own is None else own
    if not (0 < share < 1 or stays or follows) or value.type != state.type:
        return False
    scale = 1.0 if stays else weight / (1 - share)
    if abs(scale - 1) < EXACT:
        finder.g.emit("ema_update", state, value, momentum=weight)
    else:  # a variance may come scaled to the unbiased one
        finder.g.emit("ema_update", state, value, momentum=1 - share, scale=scale)
    return True
