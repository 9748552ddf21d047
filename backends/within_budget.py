"""Compiling under a memory budget: kernels of less scratch where it is out of reach."""

from collections.abc import Callable

from pockengine.backends.protocol import Backend
from pockengine.compiler.program import Program
from pockengine.errors import BudgetError


def within_budget(build: Callable[..., Program], backend: Backend) -> tuple[Program, Backend]:
    """Compile by `build(target=...)`; again with less scratch where the memory budget asks.

    BudgetError where leaner kernels do not reach it, or the backend has none.
    """
    try:
        return build(target=backend.target()), backend
    except BudgetError:
        smaller = backend.with_less_scratch()
        if smaller is None:
            raise
        return build(target=smaller.target()), smaller
