"""Compile under a memory budget: retry with kernels of less scratch if it is out of reach."""

from collections.abc import Callable

from pockengine.backends.protocol import Backend
from pockengine.compiler.program import Program
from pockengine.errors import BudgetError


def within_budget(build: Callable[..., Program], backend: Backend) -> tuple[Program, Backend]:
    """Compile with `build(target=...)`; retry with less scratch if the memory budget is exceeded.

    BudgetError, with the smallest arena of both, if leaner kernels do not fit either, or the
    backend has none.
    """
    try:
        return build(target=backend.target()), backend
    except BudgetError as error:
        first = error
    smaller = backend.with_less_scratch()
    if smaller is None:
        raise first
    try:
        return build(target=smaller.target()), smaller
    except BudgetError as error:
        raise min(first, error, key=lambda each: each.least) from None
