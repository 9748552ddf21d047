"""Hard arrays and small functions of them, for any framework that takes NumPy's arrays."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import Builder, Graph
from pockengine.tests.frontends.edges.hard_numbers import DENORMAL, EDGES, INF, LINES, PAIRED

RTOL, ATOL = 2e-4, 1e-5
"""Difference allowed at each element: relative, absolute. NaN equals NaN, infinities their like."""

WHOLE = (0, 1, -1, 2, -2, 3, 7, -7, 1000, 65537, -(2**31), 2**31 - 1)
"""Integers; their products leave 32 bits."""


@dataclass(frozen=True)
class ArrayCase:
    """A function of arrays; those of floats are trained, the others are inputs."""

    name: str
    function: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]


Functions = Mapping[str, Callable[..., Any]]


def cases_of(functions: Functions, *arrays: np.ndarray) -> Iterator[ArrayCase]:
    """Yield a case for each function of these arrays."""
    for name, function in functions.items():
        yield ArrayCase(name, function, arrays)


def _normal(numbers: Sequence[float]) -> list[float]:
    """Leave out denormals, which JAX and TensorFlow flush to zero."""
    return [number for number in numbers if abs(number) != DENORMAL]


def edges() -> np.ndarray:
    """Return the edge values as a vector."""
    return np.array(_normal(EDGES), np.float32)


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Return two vectors with every pair of the paired values."""
    first, second = zip(*itertools.product(_normal(PAIRED), repeat=2), strict=True)
    return np.array(first, np.float32), np.array(second, np.float32)


def whole_pairs(*, zeros: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return two vectors of int32 with every pair of WHOLE; `zeros` among the second too."""
    grid = [(a, b) for a, b in itertools.product(WHOLE, WHOLE) if zeros or b]
    first, second = zip(*grid, strict=True)
    return np.array(first, np.int32), np.array(second, np.int32)


def masks() -> tuple[np.ndarray, np.ndarray]:
    """Return two boolean vectors with all four pairs."""
    return np.array([False, False, True, True]), np.array([False, True, False, True])


def lines(*, finite: bool = False) -> np.ndarray:
    """Return hard rows; with `finite` those without infinities, NaN and huge numbers."""
    rows = np.array([row for row in LINES if DENORMAL not in row], np.float32)
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
    """Return a weight for each element: 1, 1.25, 1.5, 1.75, and again."""
    return (np.arange(np.prod(shape, dtype=int)) % 4 * 0.25 + 1).reshape(shape).astype(np.float32)


def param_name(number: int, index: int) -> str:
    """Name the trained array at this place of a case."""
    return f"c{number}_{index}"


def is_trained(array: np.ndarray) -> bool:
    """Return whether a case's array is of floats."""
    return array.dtype == np.float32


def add_gradients(graph: Graph) -> None:
    """Add the gradient of every trained param of `loss` as an output."""
    g = Builder(graph)
    params = {param.value: name for name, param in graph.params.items() if param.trainable}
    for value, gradient in backward(g, graph.outputs["loss"], dict.fromkeys(params)).items():
        g.output(f"gradient.{params[value]}", gradient)


Results = Mapping[str, np.ndarray]
"""By names: "case: result 0", "case: gradient 0"."""


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
