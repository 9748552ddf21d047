"""Names of an exported PyTorch program that share memory, and the effect of writes."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor as TorchTensor
from torch import strided
from torch.fx import Node


@dataclass(frozen=True)
class Origin:
    """The memory that a name is a view of. `same`: it shows the whole of it, in the same order."""

    name: Node
    same: bool


class Storages:
    """Groups names by their memory, and records the origin of each."""

    def __init__(self) -> None:
        """Start without names."""
        self._names: dict[int, list[Node]] = {}
        self._origins: dict[Node, Origin] = {}
        self._outdated: set[Node] = set()
        self._merged: dict[int, int] = {}
        """Storages of fake tensors that alias another one in eager PyTorch."""

    def add(self, name: Node, origin: Node | None = None) -> None:
        """Take in a name, if it is a tensor; `origin` is the name that it is another one of."""
        storage = _storage(name)
        if storage is None or name in self._names.get(self._merged.get(storage, storage), ()):
            return
        origin = _passed_through(name) if origin is None else origin
        if origin is not None:
            self._origins[name] = Origin(origin, same=True)
            self._merge(storage, _storage(origin))
        elif name.op == "call_function":
            sources = (value for value in _sources(name) if _storage(value) == storage)
            source = next(sources, None)
            if source is not None:
                self._origins[name] = Origin(source, same=False)
        self._names.setdefault(self._merged.get(storage, storage), []).append(name)

    def _merge(self, storage: int, other: int | None) -> None:
        """Merge two storages."""
        if other is not None and other != storage and storage not in self._merged:
            self._merged[storage] = self._merged.get(other, other)

    def origin(self, name: Node) -> Origin | None:
        """Return the name that this name is a view of; None for the name that allocated the
        memory."""
        return self._origins.get(name)

    def path(self, name: Node) -> list[Node]:
        """Return a name, its origin, the origin of that, and so on."""
        names = [name]
        while (origin := self._origins.get(names[-1])) is not None:
            names.append(origin.name)
        return names

    def write(self, name: Node) -> None:
        """Invalidate all names that alias a written storage, except those on the way up."""
        path = self.path(name)
        others = (other for other in self.sharers(name) if other not in path)
        self._outdated.update(other for other in others if _overlap(name, other))

    def overlaps(self, written: Node, read: Node) -> bool:
        """Return whether two names of an operator show an element at different places of theirs."""
        if read is written or read not in self.sharers(written):
            return False
        one, other = (_place(name.meta["val"]) for name in (written, read))
        return one != other and _overlap(written, read)

    def is_outdated(self, name: Node) -> bool:
        """Return whether a write through another name has changed this one's value."""
        return name in self._outdated

    def update(self, name: Node) -> None:
        """Record that a name has the memory's current content."""
        self._outdated.discard(name)

    def sharers(self, name: Node) -> list[Node]:
        """Return all names on the same memory, the first one first."""
        storage = _storage(name)
        return [] if storage is None else self._names.get(self._merged.get(storage, storage), [])


def _sources(name: Node) -> list[Node]:
    """Return the input of a name's operator; for a part of a list, that of the list's operator."""
    sources = name.all_input_nodes
    return [
        deeper
        for source in sources
        for deeper in ([source] if _storage(source) is not None else source.all_input_nodes)
    ]


def _passed_through(name: Node) -> Node | None:
    """Return the input of an inactive dropout, which eager PyTorch returns itself; its fake tensor
    is a copy."""
    if name.op != "call_function" or not str(name.target).endswith("dropout.default"):
        return None
    x, p, train = name.args
    return x if isinstance(x, Node) and (not train or p == 0) else None


def _place(tensor: TorchTensor) -> tuple[object, ...]:
    """Where a tensor's elements lie, in their order."""
    return (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())


def _overlap(one: Node, other: Node) -> bool:
    """Return whether an element of the same storage shows through both names."""
    tensors = [name.meta["val"] for name in (one, other)]
    places = [n for t in tensors for n in (t.storage_offset(), *t.shape, *t.stride())]
    if tensors[0].dtype is not tensors[1].dtype or not all(isinstance(n, int) for n in places):
        return True  # a view's start may also be read from a tensor: x[i] with a scalar i
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


def _storage(name: Node) -> int | None:
    """Return which memory a name looks at; None if it is not a plain tensor."""
    value = name.meta.get("val")
    if not isinstance(value, TorchTensor) or value.layout is not strided:
        return None
    try:
        return value.untyped_storage()._cdata
    except NotImplementedError:  # the wrappers of torch.func have none
        return None
