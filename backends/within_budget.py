"""Compile under a memory budget: retry with kernels of less scratch if it is out of reach."""

from collections.abc import Callable

from pockengine.backends.protocol import Backend
from pockengine.compiler.program import Program
from pockengine.errors import BudgetError


def within_budget(build: Callable[..., Program], backend: Backend) -> tuple[Program, Backend]:
    """Compile with `build(target=...)`; retry with less scratch if the memory budget is exceeded.

    BudgetError if leaner kernels do not fit either, or the backend has none.
    """
    try:
        return build(target=backend.target()), backend
    except BudgetError:
        smaller = backend.with_less_scratch()
        if smaller is None:
            raise
        return build(target=smaller.target()), smaller
