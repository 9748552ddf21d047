"""Data shared by a program's entries: one file of constants, and the layouts of written params.

A written param has one layout in all entries: that of `settle.py`, else the one its first reader
needs. Inputs and outputs of the models use this layout. A frozen param is a constant, written once
per layout in which it is read.
"""

from collections.abc import Callable, Hashable
from pathlib import Path

import numpy as np

from pockengine.backends.runtimes.layout import Layout

ALIGNMENT = 64
"""Alignment of each constant in the file."""


class Tensors:
    """The file of constants while it is written. Close it after all entries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.layouts: dict[str, Layout] = {}
        self.frozen: dict[str, dict[Layout, range]] = {}
        self._places: dict[Hashable, range] = {}
        self._file = path.open("wb")

    def frozen_place(self, name: str, layout: Layout, read: Callable[[], np.ndarray]) -> range:
        """Return the location in the file of a frozen param in a layout."""
        places = self.frozen.setdefault(name, {})
        if layout not in places:
            places[layout] = self._append(read().transpose(layout))
        return places[layout]

    def place(self, key: Hashable, data: np.ndarray) -> range:
        """Return the location in the file of a constant; equal constants have equal `key`s."""
        if key not in self._places:
            self._places[key] = self._append(data)
        return self._places[key]

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    def _append(self, data: np.ndarray) -> range:
        self._file.write(bytes(-self._file.tell() % ALIGNMENT))
        start = self._file.tell()
        self._file.write(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)
        return range(start, self._file.tell())
