"""Walk a jaxpr and build our graph from it, equation by equation."""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from jax.extend.core import Literal

from pockengine.frontends import emit
from pockengine.frontends.emit.complex import Complex
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.jax.calls import CONTROL, key_result, number_of_key
from pockengine.frontends.jax.combining import COMBINING
from pockengine.frontends.jax.places import SourceLocation
from pockengine.frontends.jax.primitives import RULES, JaxContext
from pockengine.frontends.jax.primitives.complex import complex_rule
from pockengine.frontends.jax.primitives.elementwise import UNIFORM_AS_SCALAR
from pockengine.frontends.jax.primitives.emulated_types import fitted, plain_array
from pockengine.frontends.jax.primitives.random import DRAWN, Key
from pockengine.frontends.jax.primitives.registry import known_dtype
from pockengine.frontends.jax.writes import applies_function, apply_function, whole
from pockengine.frontends.layout import Tensor
from pockengine.frontends.problems import NO_RULE
from pockengine.frontends.walker import GraphWalker, complex_constant, constant

Known = Any
"""The value of a variable: a tensor, a random key, a compile-time array (a NumPy array, or JAX's
own for keys), or None for a value that could not be imported.
"""

REASONS = {
    "pure_callback": "a call back into Python, which the device does not have; express it in JAX",
    "io_callback": "a call back into Python, which the device does not have; express it in JAX",
    "ffi_call": "a call of foreign code, which the device does not have; express it in JAX",
}
"""Reasons why some primitives have no rule."""

SILENT = {"debug_callback", "debug_print"}
"""Primitives that only print values; they are omitted on the device."""


JOINING = {"concatenate", "stack"}
"""Primitives of any number of tensors; empty ones have no effect."""


class JaxprWalker(GraphWalker):
    """One import of a function's jaxpr."""

    framework = "JAX"

    def __init__(self, name: str, *, forward: bool) -> None:
        """Start an empty graph; `forward` means that it will be differentiated."""
        super().__init__(name, checks_indices=False)
        self.forward = forward
        self._smooth = False
        self._streams: dict[Hashable, int] = {}

    @contextmanager
    def within(self, *, smooth: bool = False, formula: bool = False) -> Iterator[None]:
        """Build the body of a function.

        It may be `smooth` where its parts have corners, or the `formula` of a gradient, which is
        not differentiated itself.
        """
        before = self._smooth, self.forward
        self._smooth, self.forward = self._smooth or smooth, self.forward and not formula
        yield
        self._smooth, self.forward = before

    def run(self, jaxpr: Any, arguments: Sequence[Known], place: SourceLocation) -> list[Known]:
        """Build a closed jaxpr's equations and return the values of its results."""
        inner = jaxpr.jaxpr
        known: dict[Any, Known] = dict(
            zip(inner.constvars, map(_known_constant, jaxpr.consts), strict=True)
        )
        known.update(zip(inner.invars, arguments, strict=True))

        def read(atom: Any) -> Known:
            return (
                _known_constant(atom.val, atom.aval.dtype)
                if isinstance(atom, Literal)
                else known[atom]
            )

        for equation in inner.eqns:
            operands = [read(atom) for atom in equation.invars]
            results = self._equation(equation, operands, place.of(equation))
            known.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in inner.outvars]

    def _equation(self, equation: Any, operands: list[Known], place: SourceLocation) -> list[Known]:
        """Build one equation, or note why not."""
        name = equation.primitive.name
        with self.building(name, str(place), place.scope):
            return self._evaluate(name, equation, operands, place)
        return [None] * len(equation.outvars)

    def _evaluate(
        self, name: str, equation: Any, operands: list[Known], place: SourceLocation
    ) -> list[Known]:
        if name in SILENT:
            return []
        if name in CONTROL:
            return CONTROL[name](self, equation, operands, place)
        if name in DRAWN and isinstance(operands[0], Key):
            return self._drawn(name, equation, operands)
        if any(isinstance(operand, Key) for operand in operands):
            return key_result(name, equation, operands)
        folded = number_of_key(name, equation, operands)
        if folded is not None:
            return [folded]
        if name == "iota" or (operands and all(map(_is_known, operands))):
            return _computed(equation, operands)
        if name in COMBINING or (applies_function(equation) and not _is_empty(operands[2])):
            return self._combine(name, equation, operands, place)
        if _is_complex(equation, operands):
            return self._apply_complex(name, equation, operands)
        return self._emit(name, equation, operands)

    def _combine(
        self, name: str, equation: Any, operands: list[Known], place: SourceLocation
    ) -> list[Known]:
        """Combine or change elements with the equation's function."""
        if any(operand is None for operand in operands):
            return [None] * len(equation.outvars)
        rule = COMBINING.get(name, apply_function)
        return self._checked(rule(self, equation, operands, place), equation)

    def _drawn(self, name: str, equation: Any, operands: list[Known]) -> list[Known]:
        """Draw by a key."""
        key, *others = operands
        if any(operand is None for operand in others):
            return [None]
        arguments = (self.tensor(operand) for operand in others)
        return [DRAWN[name](self.context(equation), key, *arguments, **equation.params)]

    def _emit(self, name: str, equation: Any, operands: list[Known]) -> list[Known]:
        """Build an equation of real tensors with its primitive's rule; empty tensors are
        skipped."""
        if name not in RULES:
            raise Unsupported(REASONS.get(name, NO_RULE))
        if name == "bitcast_convert_type" and _is_narrow(equation):
            raise Unsupported("the bits of elements of less than 32 bits; use arithmetic")
        if any(operand is None for operand in operands):
            return [None] * len(equation.outvars)
        types = [variable.aval for variable in equation.outvars]
        if all(0 in type_.shape for type_ in types):
            return [np.zeros(type_.shape, type_.dtype) for type_ in types]
        if name.startswith("scatter") and _is_empty(operands[2]):
            return operands[:1]
        if name.startswith("scatter") and _is_empty(operands[1]):
            parts = [self.tensor(operands[place]) for place in (0, 2)]
            return [whole(self.context(equation), name, *parts)]
        return self._apply(name, equation, _without_empty(name, operands))

    def _apply_complex(self, name: str, equation: Any, operands: list[Known]) -> list[Known]:
        """Call the primitive's rule for pairs of real numbers."""
        rule = complex_rule(name)
        if any(operand is None for operand in operands):
            return [None] * len(equation.outvars)
        static = RULES[name].static if name in RULES else frozenset()
        arguments = [
            _static(operand) if index in static else self._pair(operand)
            for index, operand in enumerate(operands)
        ]
        built = rule(self.context(equation), *arguments, **equation.params)
        return self._checked(built if isinstance(built, (list, tuple)) else [built], equation)

    def _pair(self, known: Known) -> Tensor | Complex:
        """Add compile-time values to the graph, complex numbers as two tensors."""
        if isinstance(known, Complex):
            return known
        if isinstance(known, np.ndarray) and np.iscomplexobj(known):
            return complex_constant(self.g, known)
        return self.tensor(known)

    def _apply(self, name: str, equation: Any, operands: list[Known]) -> list[Known]:
        """Call the primitive's rule."""
        rule, shape = RULES[name], tuple(equation.outvars[0].aval.shape)
        arguments = [
            _static(operand)
            if index in rule.static
            else self._operand(operand, name in UNIFORM_AS_SCALAR)
            for index, operand in enumerate(operands)
        ]
        built = rule.apply(self.context(equation), *arguments, **equation.params)
        results: list[Any] = list(built) if isinstance(built, (list, tuple)) else [built]
        if name in UNIFORM_AS_SCALAR and results[0].shape != shape:  # its source was uniform
            results[0] = emit.broadcast(self.g, results[0], shape)
        return [
            fitted(self.g, name, x, v.aval.dtype, forward=self.forward)
            if isinstance(x, Tensor)
            else x
            for x, v in zip(self._checked(results, equation), equation.outvars, strict=True)
        ]

    def _checked(self, results: Sequence[Known], equation: Any) -> list[Known]:
        """Compare the built values with JAX's own shapes and types."""
        for result, variable in zip(results, equation.outvars, strict=True):
            if isinstance(result, (Tensor, Complex)):
                shape, dtype = tuple(variable.aval.shape), variable.aval.dtype
                real = None if isinstance(result, Complex) else known_dtype(dtype)
                self.check_result(result, shape, real, f"{dtype}{list(shape)}")
        return list(results)

    def context(self, equation: Any) -> JaxContext:
        """Return the context of an equation's rule."""
        types = [variable.aval for variable in equation.outvars]
        return JaxContext(
            self.g,
            tuple(tuple(type_.shape) for type_ in types),
            tuple(type_.dtype for type_ in types),
            forward=self.forward,
            smooth=self._smooth,
            stream=lambda path: self._streams.setdefault(path, len(self._streams)),
        )

    def tensor(self, known: Known) -> Tensor:
        """Return a variable's value as a value of the graph."""
        return self._operand(known, False)

    def _operand(self, known: Known, scalars: bool) -> Tensor:
        """Add a constant array to the graph; equal elements become one broadcast number."""
        if isinstance(known, Tensor):
            return known
        if isinstance(known, Complex):
            raise Unsupported(self.complex_result)
        if isinstance(known, Key):
            raise Unsupported("a random key, or a number for one, as data; use it for drawing only")
        array = plain_array(_static(known))
        if not array.size or (array.ndim and not np.all(array == array.flat[0])):
            return constant(self.g, array)
        number = constant(self.g, array.flat[0])
        return number if scalars else emit.broadcast(self.g, number, array.shape)


def _is_known(operand: Known) -> bool:
    return operand is not None and not isinstance(operand, (Tensor, Complex, Key))


def _is_complex(equation: Any, operands: Sequence[Known]) -> bool:
    """Return whether an equation has complex operands or results."""
    types = [variable.aval.dtype for variable in equation.outvars]
    return any(isinstance(operand, Complex) for operand in operands) or any(
        getattr(type_, "kind", "") == "c" for type_ in types
    )


def _is_narrow(equation: Any) -> bool:
    """Return whether elements have less than 32 bits."""
    types = [atom.aval.dtype for atom in (*equation.invars, *equation.outvars)]
    return any(type_.itemsize < 4 for type_ in types)


def _without_empty(name: str, operands: list[Known]) -> list[Known]:
    """Drop empty operands of a concatenation."""
    if name not in JOINING:
        return operands
    return [x for x in operands if not _is_empty(x)]


def _is_empty(operand: Known) -> bool:
    return _is_known(operand) and np.size(operand) == 0


def _static(operand: Known) -> np.ndarray:
    """Return a constant array."""
    if isinstance(operand, (Tensor, Complex)):
        raise Unsupported("an operand that must be known at compile time, and depends on data")
    return np.asarray(operand)


def _known_constant(value: Any, dtype: Any = None) -> Known:
    """Convert a constant to a NumPy array; keys stay JAX arrays, because only JAX can use them."""
    if "key<" in str(getattr(value, "dtype", "")):
        return value
    return np.asarray(value, dtype)


def _computed(equation: Any, operands: list[Known]) -> list[Known]:
    """Evaluate with JAX an equation whose operands are all constants; a broadcast takes no
    memory.
    """
    params = equation.params
    if equation.primitive.name == "broadcast_in_dim" and np.ndim(operands[0]) == 0:
        return [np.broadcast_to(operands[0], params["shape"])]
    results = equation.primitive.bind(*operands, **params)
    return [
        _known_constant(x) for x in (results if equation.primitive.multiple_results else [results])
    ]
