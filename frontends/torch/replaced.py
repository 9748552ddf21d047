"""Replace an attribute of a class, module or function of PyTorch for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ABSENT = object()


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute within a block; an inherited or absent one is so again afterwards."""
    own = vars(owner).get(name, ABSENT)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, own)
