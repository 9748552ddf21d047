"""A device that a driver of this machine lists, and the driver's library."""

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass

from pockengine.errors import FarmError


@dataclass(frozen=True)
class DriverDevice:
    """A device by its driver's name, and whether it is a GPU."""

    name: str
    is_gpu: bool


def load_driver(names: Iterable[str], advice: str) -> ctypes.CDLL:
    """Load the first library that this machine has; FarmError with the advice if it has none."""
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise FarmError(advice)
