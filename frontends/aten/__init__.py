"""The PyTorch frontend's table of ATen operators; importing this package fills it."""

from pockengine.frontends.aten import (
    activation,
    custom,
    elementwise,
    indexing,
    loss,
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
from pockengine.frontends.aten.registry import RULES, Context, rule_for

__all__ = [
    "RULES",
    "Context",
    "activation",
    "custom",
    "elementwise",
    "indexing",
    "loss",
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
