"""Initial contents of a param: an array, one number everywhere, a file's tensor, or only a shape.

Passes that need only types never read contents; passes that read hold one tensor at a time. So a
model larger than memory can be compiled; its weights are read when the artifact is written.
"""

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pockengine.compiler.ir.floats8 import FLOATS8
from pockengine.compiler.ir.scalars import DType, converted, numbers_of, of_numbers
from pockengine.compiler.ir.types import Shape, TensorType
from pockengine.errors import GraphError, reason_of

LONGEST_HEADER = 100_000_000
"""Maximum length of a header in bytes, as in the safetensors library."""


class Contents(ABC):
    """Numbers of a known type, possibly not in memory."""

    type: TensorType

    @abstractmethod
    def read(self) -> np.ndarray:
        """Return the numbers; GraphError if there are none."""

    @property
    def known(self) -> bool:
        """Whether there are numbers to read."""
        return True

    def is_finite(self) -> bool:
        """Whether all numbers are finite; unknown contents count as finite."""
        return bool(np.isfinite(numbers_of(self.read())).all())


@dataclass(frozen=True, eq=False)
class InMemory(Contents):
    """An array in memory."""

    array: np.ndarray
    type: TensorType = field(init=False)

    def __post_init__(self) -> None:
        type_ = TensorType(DType.of(self.array), tuple(self.array.shape))
        object.__setattr__(self, "type", type_)

    def read(self) -> np.ndarray:
        """Return the array."""
        return self.array


@dataclass(frozen=True)
class Filled(Contents):
    """The same number everywhere; each read makes a new array."""

    type: TensorType
    number: float = 0.0

    def read(self) -> np.ndarray:
        """Return a new array."""
        return np.full(self.type.shape, of_numbers(self.number, self.type.dtype))

    def is_finite(self) -> bool:
        """Check the one number."""
        return bool(np.isfinite(self.number))


@dataclass(frozen=True)
class Converted(Contents):
    """Another Contents' numbers in a different type of the same shape."""

    source: Contents
    type: TensorType

    @property
    def known(self) -> bool:
        """Whether the source is available."""
        return self.source.known

    def read(self) -> np.ndarray:
        """Read and convert; GraphError if there is nothing to read."""
        return converted(self.source.read(), self.type.dtype)


@dataclass(frozen=True, eq=False)
class Lazy(Contents):
    """Numbers that a function loads at each read; `source` names their origin in messages."""

    type: TensorType
    load: Callable[[], np.ndarray]
    source: str

    def read(self) -> np.ndarray:
        """Load the numbers; GraphError if their type differs from the declared one."""
        array = self.load()
        found = TensorType(DType.of(array), tuple(array.shape))
        if found != self.type:
            raise GraphError(f"{self.source} holds {found}, not {self.type}; import it again")
        return array


class Floats8(Lazy):
    """8-bit floats of a file as f32 numbers; what scales them is another tensor."""


@dataclass(frozen=True)
class ShapeOnly(Contents):
    """No numbers yet: sufficient to compile, plan and generate code."""

    type: TensorType

    @property
    def known(self) -> bool:
        """False: there is nothing to read."""
        return False

    def read(self) -> np.ndarray:
        """Raise GraphError: there are none."""
        raise GraphError(
            f"a param {self.type} has a shape and no numbers; give the graph its weights first"
        )

    def is_finite(self) -> bool:
        """Weights count as finite until they are supplied."""
        return True


@dataclass(frozen=True, eq=False)
class Unsupported(Contents):
    """A tensor of a file that has no TensorType: it may stay there as long as nothing uses it."""

    fact: str

    @property
    def type(self) -> TensorType:  # type: ignore[override]
        """Raise GraphError with the fact."""
        raise GraphError(self.fact)

    @property
    def known(self) -> bool:
        """False: its numbers cannot be read."""
        return False

    def read(self) -> np.ndarray:
        """Raise GraphError with the fact."""
        raise GraphError(self.fact)


def same_contents(first: Contents, second: Contents) -> bool:
    """Whether two hold equal numbers; identical objects and equal sources are not read."""
    if first is second or first == second:
        return True
    if first.type != second.type or not (first.known and second.known):
        return False
    one, two = (numbers_of(contents.read()) for contents in (first, second))
    return one is two or np.array_equal(one, two, equal_nan=first.type.dtype.is_float)


UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
    GraphError,
)
"""Exceptions that a damaged header causes in Python or `TensorType`."""


def mapped(path: Path) -> dict[str, Contents]:
    """The tensors of a safetensors file by name, none of them read; GraphError for another file.

    Those of 8-bit floats are read as f32, those without a TensorType are `Unsupported`. The file
    must not change while they are used.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > LONGEST_HEADER:
                raise ValueError("its header is too long")
            header = json.loads(file.read(length), object_pairs_hook=_distinct)
        header.pop("__metadata__", None)
        end = path.stat().st_size
        found = {
            name: _mapped(path, name, row, start=8 + length, end=end)
            for name, row in header.items()
        }
        _check_cover([row["data_offsets"] for row in header.values()], end - 8 - length)
        return found
    except UNREADABLE as error:
        raise GraphError(f"{path} cannot be read as safetensors: {reason_of(error)}") from error


def _distinct(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Build a JSON object; ValueError for a duplicate key, which readers treat differently."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{next(key for key in keys if keys.count(key) > 1)} is given twice")
    return found


def _check_cover(places: Sequence[Sequence[int]], size: int) -> None:
    """Raise ValueError unless tensors are contiguous and fill all bytes, as the format requires."""
    end = 0
    for first, last in sorted(map(tuple, places)):
        if first != end:
            raise ValueError(f"its tensors overlap or leave a gap at byte {first} of the data")
        end = last
    if end != size:
        raise ValueError(f"{size - end} bytes belong to no tensor")


def _bits(name: str) -> int:
    """Return the bits of a number by the name of its type, such as BF16 or F8_E4M3FNUZ."""
    match = re.fullmatch(r"BOOL|[A-Z]+(\d+)(_\w+)?", name)
    if match is None:
        raise ValueError(f"{name} is no type of numbers")
    return int(match[1] or 8)


def _mapped(path: Path, name: str, row: Mapping[str, object], start: int, end: int) -> Contents:
    wide = FLOATS8.get(str(row["dtype"]))
    stored = DType.U8.stored_name if wide is not None else row["dtype"]
    dtype = next((dtype for dtype in DType if dtype.stored_name == stored), None)
    shape: Shape = tuple(int(size) for size in row["shape"])  # type: ignore[attr-defined]
    first, last = (start + int(place) for place in row["data_offsets"])  # type: ignore[attr-defined]
    size = math.prod(shape) * _bits(str(row["dtype"]))
    if not start <= first <= last <= end or 8 * (last - first) != size:
        raise ValueError(f"{name} does not lie inside of the file")
    if dtype is None or 0 in shape:
        fact = f"{name} of {path} is {row['dtype']}{list(shape)}, which is not supported"
        return Unsupported(f"{fact}; store it in another type")
    type_ = TensorType(dtype, shape)

    def load() -> np.ndarray:
        view = np.memmap(path, np.uint8, "r", first, (type_.nbytes,))
        return np.asarray(view).view(dtype.numpy).reshape(shape)

    if wide is not None:
        numbers = wide
        return Floats8(TensorType(DType.F32, shape), lambda: numbers[load()], f"{name} of {path}")
    return Lazy(type_, load, f"{name} of {path}")
