"""Replace an attribute of a PyTorch class, module or function temporarily."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ABSENT = object()


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute within a block; afterwards an inherited or absent one is restored."""
    own = vars(owner).get(name, ABSENT)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, own)
