"""Example inputs for a model that declares its inputs: they give shapes and types."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pockengine.errors import ImportModelError
from pockengine.frontends.model_files import Declared

Shapes = Mapping[str, Sequence[int]]
"""The user's shapes of inputs whose sizes a model leaves open."""


Batch = tuple[int | None, int]
"""The requested number of rows, or None, and the default."""


def examples(
    name: str, inputs: Sequence[Declared], batch: Batch, shapes: Shapes
) -> dict[str, np.ndarray]:
    """Return an array for each input: numbers around zero, or 0 and 1, which index every table.

    An open first size is the batch. ImportModelError for other open sizes, for an unsupported
    batch, and for shapes that do not fit.
    """
    unknown = sorted(set(shapes) - {declared.name for declared in inputs})
    if unknown:
        known = ", ".join(map(str, inputs))
        raise ImportModelError(f"{name} has no input {', '.join(unknown)}; it has {known}")
    rng = np.random.default_rng(0)
    return {
        declared.name: _example(rng, declared, _shape(name, declared, batch, shapes))
        for declared in inputs
    }


def _shape(name: str, declared: Declared, batch: Batch, shapes: Shapes) -> tuple[int, ...]:
    requested, own = shapes.get(declared.name), declared.shape
    if requested is not None:
        wrong = len(requested) != len(own) or any(
            size not in (None, wish) for size, wish in zip(own, requested, strict=False)
        )
        if wrong:
            raise ImportModelError(f"{name}: --shape {declared.name} does not fit {declared}")
        return tuple(requested)
    if own and own[0] is None:
        own = (batch[0] or batch[1], *own[1:])
    elif own and batch[0] not in (None, own[0]):
        raise ImportModelError(
            f"{name} takes {declared}, so --batch {batch[0]} has no effect; export it with an open "
            "batch"
        )
    if None in own:
        raise ImportModelError(
            f"{name} leaves sizes of {declared} open; say them all, as --shape "
            f"{declared.name}={'x'.join(str(size or 32) for size in own)}"
        )
    return tuple(size for size in own if size is not None)


def _example(rng: np.random.Generator, declared: Declared, shape: tuple[int, ...]) -> Any:
    if declared.dtype.kind == "f":
        return rng.standard_normal(shape).astype(declared.dtype)
    return rng.integers(0, 2, shape).astype(declared.dtype)
