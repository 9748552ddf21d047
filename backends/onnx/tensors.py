"""What the entries of a program share: one file of constants, and how each written param lies.

A param that an entry writes lies in one layout in all entries: what `settle.py` says, else what its
first reader wants. It goes in and out of the models so. A frozen one is a constant, written once
for each layout in which it is read.
"""

from collections.abc import Callable, Hashable
from pathlib import Path

import numpy as np

from pockengine.backends.runtimes.layout import Layout

ALIGNMENT = 64
"""Of each constant in the file."""


class Tensors:
    """The file of constants, while it is written. Close it when all entries are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.layouts: dict[str, Layout] = {}
        self.frozen: dict[str, dict[Layout, range]] = {}
        self._places: dict[Hashable, range] = {}
        self._file = path.open("wb")

    def frozen_place(self, name: str, layout: Layout, read: Callable[[], np.ndarray]) -> range:
        """Return the bytes of the file that hold a frozen param in a layout."""
        places = self.frozen.setdefault(name, {})
        if layout not in places:
            places[layout] = self._append(read().transpose(layout))
        return places[layout]

    def place(self, key: Hashable, data: np.ndarray) -> range:
        """Return the bytes of the file that hold a constant; `key` is equal for equal ones."""
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
