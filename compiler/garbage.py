"""Cyclic garbage: nodes and their results refer to each other, so only Python's collector frees
them.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS = 50_000
"""New objects between two collections. With Python's 700, a sixth of the time of compiling a small
language model within a budget is the collector's. The peak of memory grows by 7 MB.
"""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage after every `OBJECTS` objects instead of Python's 700; also a decorator.

    A collector that is off, or that runs more rarely already, stays as it is.
    """
    youngest, *older = gc.get_threshold()
    if not 0 < youngest < OBJECTS:
        yield
        return
    gc.set_threshold(OBJECTS, *older)
    try:
        yield
    finally:
        gc.set_threshold(youngest, *older)
