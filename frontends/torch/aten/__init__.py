"""The PyTorch frontend's table of ATen operators; importing this package fills it."""

from pockengine.frontends.torch.aten import (
    activation,
    custom,
    elementwise,
    indexing,
    loss,
    marks,
    nn,
    ordering,
    places,
    prims,
    random,
    reduction,
    resize,
    scatter,
    sequence,
    shape,
)
from pockengine.frontends.torch.aten.registry import RULES, AtenContext, rule_for

__all__ = [
    "RULES",
    "AtenContext",
    "activation",
    "custom",
    "elementwise",
    "indexing",
    "loss",
    "marks",
    "nn",
    "ordering",
    "places",
    "prims",
    "random",
    "reduction",
    "resize",
    "rule_for",
    "scatter",
    "sequence",
    "shape",
]
