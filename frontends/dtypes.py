"""Supported element types of models: those that ops calculate with, by NumPy's names."""

from typing import Any

import numpy as np

from pockengine.compiler.ir.scalars import COMPUTED, DType, numpy_names
from pockengine.frontends.emit.nn import Unsupported

_FIRST, _LAST = numpy_names(COMPUTED[:-1]), numpy_names(COMPUTED[-1:])
USE = f"use {_FIRST} or {_LAST}"
"""End of a message that refuses another type."""

ELSE = f"a type other than {_FIRST} and {_LAST}"


def find_dtype(numpy: Any) -> DType | None:
    """Our type for NumPy's; None if ops do not calculate with it."""
    try:
        form = np.dtype(numpy)
    except TypeError:
        return None
    return next((dtype for dtype in COMPUTED if dtype.numpy == form), None)


def known_dtype(numpy: Any, what: str) -> DType:
    """Our type for NumPy's; Unsupported, naming `what`, if there is none."""
    dtype = find_dtype(numpy)
    if dtype is None:
        raise Unsupported(f"{what}; {USE}")
    return dtype


def dtype_of(data: np.ndarray) -> DType:
    """Return our element type; Unsupported names a type without one."""
    if data.dtype.kind in "OSU":
        raise Unsupported("a string; only numbers can be computed with, look words up before")
    return known_dtype(data.dtype, f"numbers of {data.dtype}")
