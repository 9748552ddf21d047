"""Edge-case arrays and small functions of them, for any framework that takes NumPy arrays."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import Builder, Graph
from pockengine.tests.frontends.edges.hard_numbers import (
    DENORMAL,
    EDGES,
    INF,
    LINES,
    PAIRED,
    WHOLE,
    WHOLE_I32,
)

RTOL, ATOL = 2e-4, 1e-5
"""Relative and absolute tolerance of each element. NaN equals NaN; equal infinities are equal."""


@dataclass(frozen=True)
class ArrayCase:
    """A function and its arrays; float arrays are trained, the others are inputs."""

    name: str
    function: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, name: str, function: Callable[..., Any], arrays: Iterable[Any]) -> "ArrayCase":
        """Build a case from arrays of any framework."""
        return cls(name, function, tuple(map(np.asarray, arrays)))


Functions = Mapping[str, Callable[..., Any]]


def cases_of(functions: Functions, *arrays: np.ndarray) -> Iterator[ArrayCase]:
    """Yield a case for each function, applied to these arrays."""
    for name, function in functions.items():
        yield ArrayCase(name, function, arrays)


def edges(*, normal: bool = False) -> np.ndarray:
    """Return the edge values as a vector.

    `normal`, here and below, excludes denormals, which JAX and TensorFlow flush to zero.
    """
    return np.array([x for x in EDGES if not normal or abs(x) != DENORMAL], np.float32)


def pairs(*, normal: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return two vectors that contain every pair of `PAIRED` values."""
    numbers = [x for x in PAIRED if not normal or x != DENORMAL]
    first, second = np.array(list(itertools.product(numbers, repeat=2)), np.float32).T.copy()
    return first, second


def whole_pairs(*, zeros: bool = True, narrow: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return two vectors of int64, or int32 if `narrow`, that contain every pair of integers.

    Without `zeros` the second vector contains no zero.
    """
    numbers = itertools.product(WHOLE_I32 if narrow else WHOLE, repeat=2)
    grid = [(a, b) for a, b in numbers if zeros or b]
    first, second = np.array(grid, np.int32 if narrow else np.int64).T.copy()
    return first, second


def masks() -> tuple[np.ndarray, np.ndarray]:
    """Return two boolean vectors that contain all four pairs."""
    return np.array([False, False, True, True]), np.array([False, True, False, True])


def lines(*, finite: bool = False, normal: bool = False) -> np.ndarray:
    """Return `LINES`; `finite` excludes rows with infinities, NaN and huge numbers."""
    rows = np.array([row for row in LINES if not normal or DENORMAL not in row], np.float32)
    return rows[np.abs(rows).max(1) <= 100] if finite else rows


VECTORS: Mapping[str, tuple[float, ...]] = {
    "one element": (3.0,),
    "one zero": (0.0,),
    "constants": (2.0, 2.0, 2.0),
    "zeros": (0.0, 0.0, 0.0),
    "two zeros": (0.0, 5.0, 0.0),
    "ties": (1.0, 3.0, 3.0, 1.0),
    "minus infinities": (-INF, -INF),
    "with infinity": (INF, 1.0),
}


def weights_of(shape: Sequence[int]) -> np.ndarray:
    """Return a weight for each element: 1, 1.25, 1.5, 1.75, repeated."""
    return (np.arange(np.prod(shape, dtype=int)) % 4 * 0.25 + 1).reshape(shape).astype(np.float32)


def param_name(number: int, index: int) -> str:
    """Name the array at this position of a case."""
    return f"c{number}_{index}"


def result_name(number: int, index: int) -> str:
    """Name a result of a case; names sort in the order of results."""
    return f"r{number:04}_{index:02}"


def named_arrays(cases: Sequence[ArrayCase], *, trained: bool) -> dict[str, np.ndarray]:
    """Return all cases' trained arrays, or their inputs, by name."""
    return {
        param_name(number, index): array
        for number, case in enumerate(cases)
        for index, array in enumerate(case.arrays)
        if is_trained(array) is trained
    }


def is_trained(array: np.ndarray) -> bool:
    """Return whether an array is trained: it has type float32."""
    return bool(array.dtype == np.float32)


def add_gradients(graph: Graph) -> None:
    """Add an output for the gradient of `loss` in each trained param."""
    g = Builder(graph)
    params = {param.value: name for name, param in graph.params.items() if param.trainable}
    for value, gradient in backward(g, graph.outputs["loss"], dict.fromkeys(params)).items():
        g.output(f"gradient.{params[value]}", gradient)


Results = Mapping[str, np.ndarray]
"""Arrays by name: "case: result 0", "case: gradient 0"."""


def results_of(cases: Sequence[ArrayCase], found: Mapping[str, np.ndarray]) -> Results:
    """Name results and gradients by their cases; a missing gradient is zero."""
    named = {}
    for number, case in enumerate(cases):
        results = [y for name, y in found.items() if name.startswith(result_name(number, 0)[:-2])]
        named.update({f"{case.name}: result {i}": y for i, y in enumerate(results)})
        for index, array in enumerate(case.arrays):
            if is_trained(array):
                gradient = found.get(f"gradient.{param_name(number, index)}")
                zeros = np.zeros_like(array)
                named[f"{case.name}: gradient {index}"] = zeros if gradient is None else gradient
    return named


def differences(found: Results, expected: Results) -> dict[str, str]:
    """Describe where arrays differ."""
    wrong = {}
    for place, reference in expected.items():
        text = _difference(found[place], reference)
        if text:
            wrong[place] = f"{place}: {text}"
    return wrong


def _difference(found: np.ndarray, expected: np.ndarray) -> str:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype} {found.shape}, not {expected.dtype} {expected.shape}"
    with np.errstate(all="ignore"):
        same = (
            np.isclose(found, expected, RTOL, ATOL, equal_nan=True)
            if expected.dtype.kind == "f"
            else found == expected
        )
    if same.all():
        return ""
    places = [tuple(int(i) for i in place) for place in np.argwhere(~same)]
    texts = [f"at {list(at)} {found[at]!s} not {expected[at]!s}" for at in places[:6]]
    return f"{len(places)} of {same.size}: {'; '.join(texts)}"
