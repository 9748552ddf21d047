"""The PyTorch frontend's table of ATen operators; importing this package fills it."""

from pockengine.frontends.torch.aten import (
    activation,
    attend,
    bags,
    bits,
    complex,
    cumulative,
    custom,
    elementwise,
    indexing,
    integers,
    levels,
    loss,
    marks,
    matrices,
    nn,
    numbers,
    ordering,
    places,
    prims,
    random,
    reduction,
    resize,
    scatter,
    sequence,
    shape,
    volume,
)
from pockengine.frontends.torch.aten.complex import complex_rule_for
from pockengine.frontends.torch.aten.registry import RULES, AtenContext, rule_for


def has_rule(overload: str) -> bool:
    """Whether an operator has a rule, if only for complex numbers."""
    return rule_for(overload) is not None or complex_rule_for(overload) is not None


__all__ = [
    "RULES",
    "AtenContext",
    "activation",
    "attend",
    "bags",
    "bits",
    "complex",
    "complex_rule_for",
    "cumulative",
    "custom",
    "elementwise",
    "has_rule",
    "indexing",
    "integers",
    "levels",
    "loss",
    "marks",
    "matrices",
    "nn",
    "numbers",
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
    "volume",
]
