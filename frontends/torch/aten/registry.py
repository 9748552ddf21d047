"""Rules of the PyTorch frontend: one small function for each ATen operator.

A rule is registered under its overloads and called with the operator's arguments by their names in
the ATen schema, defaults filled in; `self` and `input` are called `x`. Tensors arrive as `Tensor`,
everything else as Python values. In-place overloads (`relu_`) use the rule of the plain operator.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pockengine.compiler.ir import Builder, DType, Shape
from pockengine.frontends.layout import Layout

Rule = Callable[..., Any]


@dataclass(frozen=True)
class AtenContext:
    """Context of a rule besides its arguments: the builder, and PyTorch's result types."""

    g: Builder
    shape: Shape
    dtype: DType | None
    """Shape and type of the operator's first result; None if our IR has no such type."""


@dataclass(frozen=True)
class Missing:
    """A result that a rule does not compute; an operator that reads it is unsupported for this
    reason."""

    reason: str


RULES: dict[str, Rule] = {}

WEIGHT_LAYOUTS: dict[str, Layout] = {}
"""How a parameter that is an operator's `weight` is best stored."""


def aten(*overloads: str, weight: Layout | None = None) -> Callable[[Rule], Rule]:
    """Register a rule for these overloads, such as `conv2d.default`."""

    def register(rule: Rule) -> Rule:
        for overload in overloads:
            if overload in RULES:
                raise ValueError(f"aten.{overload} has two rules")
            RULES[overload] = rule
            if weight is not None:
                WEIGHT_LAYOUTS[overload] = weight
        return rule

    return register


def rule_for(overload: str) -> Rule | None:
    """Find an overload's rule; `relu_.default` and `prims.relu.default` have `relu.default`'s."""
    if overload.startswith("prims."):  # most are named as ATen names them
        name = overload.split(".")[1]
        overloads = (overload, f"{name}.default", f"{name}.Tensor")
        return next((RULES[known] for known in overloads if known in RULES), None)
    name, _, variant = overload.partition(".")
    return RULES.get(overload) or RULES.get(f"{name.removesuffix('_')}.{variant}")
