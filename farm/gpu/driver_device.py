"""A device that a driver of this machine lists."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DriverDevice:
    """A device by its driver's name, and whether it is a GPU."""

    name: str
    is_gpu: bool
