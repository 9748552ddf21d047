"""Data shared by a file's subgraphs: constants, and layouts of written params."""

import hashlib
from collections.abc import Hashable

import numpy as np

from pockengine.backends.runtimes.layout import Layout
from pockengine.compiler.ir.graph import Param


class Shared:
    """Constants by content, frozen params by layout, and the layouts of written ones."""

    def __init__(self) -> None:
        self.written: dict[str, Layout] = {}
        self.frozen: dict[tuple[str, Layout], np.ndarray] = {}
        self._constants: dict[Hashable, np.ndarray] = {}

    def constant(self, data: np.ndarray) -> np.ndarray:
        """Return the first array equal to this one."""
        data = np.ascontiguousarray(data).reshape(data.shape)
        digest = hashlib.sha256(data.reshape(-1).view(np.uint8).data).digest()
        return self._constants.setdefault((digest, data.size, data.dtype.str), data)

    def frozen_param(self, param: Param, layout: Layout) -> np.ndarray:
        """Return a frozen param in a layout."""
        key = (param.value.name, layout)
        if key not in self.frozen:
            self.frozen[key] = laid_out_data(param, layout)
        return self.frozen[key]


def laid_out_data(param: Param, layout: Layout) -> np.ndarray:
    """Return a param's initial contents in a layout."""
    array = param.contents.read().transpose(layout)
    return np.ascontiguousarray(array).reshape(array.shape)
