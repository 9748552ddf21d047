"""Rules of the TensorFlow frontend: one small function for each operator of a GraphDef.

A rule is called with a context, the operator's inputs in order and the attributes that its keyword-
only parameters name (others do not change the meaning). Inputs are `Tensor`s, except the positions
in `static`, which arrive as NumPy arrays because shapes depend on them, those in `either`, which
arrive as NumPy arrays where they are known, and those in `ignored`, which arrive as None. A rule
returns one result or a sequence of them; a NumPy array is a result known at compile time.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pockengine.compiler.ir import Builder, DType, Shape
from pockengine.frontends.layout import Tensor


@dataclass(frozen=True)
class Opaque:
    """Placeholder of a value that our IR cannot represent; an empty reason has been reported
    before.
    """

    reason: str = ""


@dataclass(frozen=True)
class TensorList:
    """A TensorList, as loops use them: its current items (None: not written), of one shape."""

    items: "tuple[Known | None, ...]"
    shape: Shape | None = None


@dataclass(frozen=True)
class Truths:
    """Where a boolean tensor is true: the coordinates, or those along one dimension.

    Their number depends on data, so only the first position can be read (`truths.py`).
    """

    mask: Tensor
    dtype: DType
    dim: int | None = None


Known = Any
"""The value of a tensor of TensorFlow's graph: a `Tensor`, a NumPy array known at compile time,
a `TensorList`, `Truths`, a variable (for its handle), or `Opaque`."""

Rule = Callable[..., Any]
"""Returns the value of one result, or a list of values."""


@dataclass(frozen=True)
class TfContext:
    """A rule's context, besides its inputs and attributes.

    `shapes` are the results' shapes as far as TensorFlow has inferred them, None if unknown.
    """

    g: Builder
    shapes: tuple[Shape | None, ...]


@dataclass(frozen=True)
class TfRule:
    """A rule with the facts that the importer needs before calling it."""

    apply: Rule
    static: tuple[int, ...]
    ignored: tuple[int, ...]
    either: tuple[int, ...] = ()

    @cached_property
    def attributes(self) -> frozenset[str]:
        """Names of the attributes that the rule reads."""
        parameters = inspect.signature(self.apply).parameters.values()
        return frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


RULES: dict[str, TfRule] = {}


def tf_op(
    *names: str,
    static: Sequence[int] = (),
    ignored: Sequence[int] = (),
    either: Sequence[int] = (),
) -> Callable[[Rule], Rule]:
    """Register a rule for these operators; negative positions count from the last input."""

    def register(rule: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"{name} has two rules")
            RULES[name] = TfRule(rule, tuple(static), tuple(ignored), tuple(either))
        return rule

    return register


def integers(array: np.ndarray) -> list[int]:
    """Read a static input, such as a shape or axes, as plain integers."""
    return [int(number) for number in np.ravel(array)]
