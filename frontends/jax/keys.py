"""Decide which uint32 arrays are random keys: those used only for drawing.

An old-style key is an ordinary array of two numbers; its uses identify it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

DRAWING = ("random_wrap", "threefry2x32")
"""Primitives that take an array of numbers as a key."""

MOVING = {
    "broadcast_in_dim",
    "concatenate",
    "copy",
    "dynamic_slice",
    "expand_dims",
    "gather",
    "optimization_barrier",
    "reshape",
    "rev",
    "select_n",
    "slice",
    "split",
    "squeeze",
    "transpose",
    "unstack",
}
"""Primitives that only move numbers."""


def is_key_type(value: Any) -> bool:
    """Return whether an array, or a type, is one of JAX's typed keys."""
    return "key<" in str(value.dtype)


def draws(jaxpr: Any, variable: Any) -> bool:
    """Return whether a random primitive gets this variable, directly or after moves."""
    return any(
        equation.primitive.name in DRAWING for equation in _readers(jaxpr, {variable}, MOVING)
    )


def counts(jaxpr: Any, variable: Any) -> bool:
    """Return whether a uint32 variable is used only for keys."""
    return all(
        is_key_type(result.aval) or result.aval.dtype == np.uint32
        for equation in _readers(jaxpr, {variable}, None)
        for result in equation.outvars
    )


def _readers(jaxpr: Any, keys: set[Any], through: set[str] | None) -> Iterator[Any]:
    """Yield the equations that read a value, also through primitives in `through`.

    None means all primitives except those that return keys. Bodies of calls and loops are searched
    in place of their equation.
    """
    for equation in jaxpr.eqns:
        read = [not hasattr(atom, "val") and atom in keys for atom in equation.invars]
        if not any(read):
            continue
        bodies = [body for value in equation.params.values() for body in _bodies(value)]
        for body in bodies:
            # A branch or a loop body takes the last operands; constants of others come first.
            inner = zip(body.invars[::-1], read[::-1], strict=False)
            yield from _readers(body, {variable for variable, is_key in inner if is_key}, through)
        if not bodies:
            yield equation
        if bodies or through is None or equation.primitive.name in through:
            keys = keys | {v for v in equation.outvars if v.aval.dtype == np.uint32}


def _bodies(value: Any) -> Iterator[Any]:
    """Yield the jaxprs in a parameter of an equation."""
    for part in value if isinstance(value, (tuple, list)) else (value,):
        inner = getattr(part, "jaxpr", part)
        if hasattr(inner, "eqns"):
            yield inner
