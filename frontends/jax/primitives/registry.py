"""Rules of the JAX frontend: one small function for each primitive of a jaxpr.

A rule is called with a context, the equation's operands in order and its parameters by name; it
accepts unused ones as `**_`. Operands are `Tensor`s, except the positions in `static`, which are
NumPy arrays because they must be compile-time constants. A rule returns one result or a list.
Equations with constant operands never get here: JAX itself evaluates them during the import.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from pockengine.compiler.ir import Builder, DType, Shape
from pockengine.frontends import dtypes
from pockengine.frontends.jax.primitives.emulated_types import EMULATED
from pockengine.frontends.layout import Tensor

Result = Tensor | np.ndarray
Rule = Callable[..., Result | Sequence[Result]]
AnyRule = TypeVar("AnyRule", bound=Rule)


@dataclass(frozen=True)
class JaxContext:
    """A rule's context, besides operands and parameters: the results' shapes, and NumPy types.

    `forward` says that the graph will be differentiated here; a step that holds its own gradients
    will not. `smooth` says that this is a part of a function of JAX's with a rule for its gradient,
    which is that of its parts once |x| has none at zero. `stream` numbers random draws: the same
    key and shape always give the same number.
    """

    g: Builder
    shapes: tuple[Shape, ...]
    dtypes: tuple[np.dtype[Any], ...]
    forward: bool
    smooth: bool
    stream: Callable[[Hashable], int]

    @property
    def shape(self) -> Shape:
        """Shape of the first result."""
        return self.shapes[0]

    @property
    def dtype(self) -> DType:
        """Element type of the first result; Unsupported names one that we do not have."""
        return known_dtype(self.dtypes[0])


@dataclass(frozen=True)
class Primitive:
    """A rule, and which operands it needs as NumPy arrays."""

    apply: Rule
    static: frozenset[int]


RULES: dict[str, Primitive] = {}


def primitive(*names: str, static: Sequence[int] = ()) -> Callable[[AnyRule], AnyRule]:
    """Register a rule for these primitives."""

    def register(rule: AnyRule) -> AnyRule:
        for name in names:
            if name in RULES:
                raise ValueError(f"{name} has two rules")
            RULES[name] = Primitive(rule, frozenset(static))
        return rule

    return register


def known_dtype(dtype: Any) -> DType:
    """Return our element type, or the one that holds it; Unsupported for one that we lack."""
    emulating = EMULATED.get(dtype)
    return (
        dtypes.known_dtype(dtype, f"elements of type {dtype}") if emulating is None else emulating
    )
