"""Which names of an exported PyTorch program share memory, and what an in-place operator changes.

PyTorch's fake tensors tell storage, shape, strides and offset of each name. Names of the same view
stand for the same tensor for ever; a write through one view makes overlapping others unreadable,
since values of our IR never change.
"""

from typing import Any

import numpy as np
from torch import Tensor as TorchTensor
from torch import strided
from torch.fx import Node


class Storages:
    """Groups names by the memory that they look at."""

    def __init__(self) -> None:
        """Know no name yet."""
        self._names: dict[int, list[Node]] = {}
        self._stale: set[Node] = set()

    def add(self, name: Node) -> None:
        """Note a name, if it is a tensor."""
        view = _view(name)
        if view is not None:
            self._names.setdefault(view[0], []).append(name)

    def write(self, name: Node) -> list[Node]:
        """Return the names that now stand for the new value; views that overlap it go stale."""
        view = _view(name)
        if view is None:
            return [name]
        names = self._names.get(view[0], [])
        same = [other for other in names if _view(other) == view]
        others = (other for other in names if _view(other) != view)
        self._stale.update(other for other in others if _overlap(name, other))
        return same

    def is_stale(self, name: Node) -> bool:
        """Return whether a write through another view has changed what this name shows."""
        return name in self._stale

    def sharers(self, name: Node) -> list[Node]:
        """Return all names on the same memory, the first one first."""
        view = _view(name)
        return [] if view is None else self._names.get(view[0], [])


def _overlap(one: Node, other: Node) -> bool:
    """Return whether an element of the same storage shows through both names."""
    tensors = [name.meta["val"] for name in (one, other)]
    if tensors[0].dtype is not tensors[1].dtype:
        return True
    size = tensors[0].element_size()
    memory = np.empty(tensors[0].untyped_storage().nbytes(), np.uint8)  # only its addresses matter
    views = [
        np.ndarray(
            tuple(tensor.shape),
            f"V{size}",
            memory,
            tensor.storage_offset() * size,
            tuple(step * size for step in tensor.stride()),
        )
        for tensor in tensors
    ]
    return np.shares_memory(views[0], views[1])


def _view(name: Node) -> tuple[Any, ...] | None:
    value = name.meta.get("val")
    if not isinstance(value, TorchTensor) or value.layout is not strided:
        return None
    storage = value.untyped_storage()._cdata
    return (storage, value.dtype, tuple(value.shape), value.stride(), value.storage_offset())
