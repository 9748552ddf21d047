"""Rules of the ONNX frontend: one small function for each operator.

A rule is called with a context, the operator's inputs in order (None if missing) and its attributes
by name; its keyword-only parameters are the supported attributes. Inputs are `Tensor`s, except the
positions in `static`, which are NumPy arrays because shapes depend on them. A rule returns one
result or a sequence of them; a NumPy array is a result known at compile time.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pockengine.compiler.ir import Builder
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Layout, Tensor

ML_DOMAIN = "ai.onnx.ml"
TRAINING_DOMAIN = "ai.onnx.preview.training"

Result = Tensor | np.ndarray | None
Rule = Callable[..., Result | Sequence[Result]]
Wish = Callable[[int, Mapping[str, Any]], Layout | None]
"""From a weight's rank and the operator's attributes to the layout that it is best stored in."""


@dataclass(frozen=True)
class OnnxContext:
    """A rule's context, besides its inputs and attributes.

    `requested` is whether each output of the operator has a name; `training` whether the model is
    imported in training mode; `find` returns any tensor that the graph has by now; `weight` creates
    a param from an attribute.
    """

    g: Builder
    opset: int
    requested: tuple[bool, ...]
    training: bool
    find: Callable[[str], Tensor]
    weight: Callable[[str, np.ndarray], Tensor]

    def wants(self, output: int) -> bool:
        """Return whether an output may have a reader."""
        return output < len(self.requested) and self.requested[output]


@dataclass(frozen=True)
class OnnxRule:
    """A rule with the facts that the importer needs before calling it.

    `attributes` are those that it knows; `static` the inputs needed at compile time; `states` those
    that training does not touch (running statistics); `wish` is the favorite layout of input 1.
    """

    apply: Rule
    attributes: frozenset[str]
    static: frozenset[int]
    states: frozenset[int]
    wish: Wish

    @cached_property
    def most_inputs(self) -> float:
        """How many inputs the rule takes."""
        kinds = [p.kind for p in inspect.signature(self.apply).parameters.values()]
        if inspect.Parameter.VAR_POSITIONAL in kinds:
            return float("inf")
        return kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD) - 1


RULES: dict[tuple[str, str], OnnxRule] = {}
"""By domain and operator; the standard's own domain is empty."""


def _no_wish(rank: int, attributes: Mapping[str, Any]) -> Layout | None:
    return None


def _keywords(rule: Rule) -> Iterable[str]:
    """Return the names of a function's keyword-only parameters."""
    parameters = inspect.signature(rule).parameters.values()
    return (p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


def onnx_op(
    *names: str,
    domain: str = "",
    static: Sequence[int] = (),
    states: Sequence[int] = (),
    wish: Wish = _no_wish,
    attributes: Iterable[str] = (),
) -> Callable[[Rule], Rule]:
    """Register a rule for these operators; `attributes` are those that it takes by `**`."""

    def register(rule: Rule) -> Rule:
        known = frozenset((*_keywords(rule), *attributes))
        for name in names:
            if (domain, name) in RULES:
                raise ValueError(f"{domain}.{name} has two rules")
            RULES[domain, name] = OnnxRule(
                rule, known, frozenset(static), states=frozenset(states), wish=wish
            )
        return rule

    return register


def find_rule(domain: str, name: str) -> OnnxRule | None:
    """Find the rule of an operator."""
    return RULES.get(("" if domain == "ai.onnx" else domain, name))


def integers(array: np.ndarray | None) -> list[int] | None:
    """Read a static input, such as a shape or axes, as plain integers."""
    return None if array is None else [int(number) for number in np.ravel(array)]


def dims_of(rank: int, operand: np.ndarray | None, axes: Sequence[int] | None) -> list[int] | None:
    """Read axes, which newer opsets have as an input and older ones as an attribute."""
    dims = integers(operand) if operand is not None else axes
    if dims is None:
        return None
    if any(not -rank <= dim < rank for dim in dims):
        raise Unsupported(f"axes {list(dims)} of a tensor of {rank} dimensions")
    return [dim % rank for dim in dims]
