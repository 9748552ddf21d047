"""GGUF files (versions 2 and 3): the table of tensors, and each tensor's numbers on demand.

The format is ggml's: a header of keys with values, a table of tensors, and their aligned data.
Dimensions are listed fastest first, ours slowest first. A tensor of an unsupported type
(gguf_forms.py) is refused when it is read. Keys are copied as bytes; only lists of f32 are read.
"""

import math
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from pockengine.compiler.ir.contents import Contents, Lazy
from pockengine.compiler.ir.grids import Grid
from pockengine.compiler.ir.types import F32, Shape, TensorType
from pockengine.errors import ImportModelError, reason_of
from pockengine.models.gguf_forms import BlockFormat, find_form, form_of, written_form

MAGIC, VERSIONS, ALIGNMENT = b"GGUF", (2, 3), 32
LONGEST = 100_000_000
"""Maximum bytes of a header: large vocabularies take some millions."""
DEEPEST = 8
"""Maximum depth of arrays in arrays."""
_RANK = 4
_ALIGNED = b"general.alignment"
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value by its type number; the two other types are texts and arrays."""
_TEXT, _ARRAY, _U32, _F32 = 8, 9, 4, 6


@dataclass(frozen=True)
class GgufTensor:
    """A tensor of a file: its shape in our order, its type number, its first byte."""

    shape: Shape
    form: int
    start: int


@dataclass(frozen=True)
class GgufFile:
    """A file's keys as bytes, their number, and its tensors by name.

    `lists`: the first byte in `keys` and the length of each value that is a list of f32.
    """

    path: Path
    keys: bytes
    count: int
    alignment: int
    entries: Mapping[str, GgufTensor]
    lists: Mapping[bytes, tuple[int, int]]

    def numbers(self, key: str) -> np.ndarray:
        """Return the value [n] of a key that is a list of f32; [0] if there is no such key."""
        start, count = self.lists.get(key.encode(), (0, 0))
        return np.frombuffer(self.keys, "<f4", count, start)

    def with_numbers(self, key: str, numbers: np.ndarray) -> "GgufFile":
        """Return the file with other numbers in a list of f32, as many as before."""
        start, count = self.lists[key.encode()]
        new = np.ascontiguousarray(numbers, "<f4").tobytes()
        assert len(new) == 4 * count
        keys = self.keys[:start] + new + self.keys[start + len(new) :]
        return replace(self, keys=keys)

    def form(self, name: str) -> BlockFormat:
        """Return the type of a tensor; ImportModelError for an unsupported type."""
        return form_of(self.entries[name].form, f"{self.path}: {name}")

    def contents(self, name: str) -> Contents:
        """Return a tensor as f32, decoded from the mapped file at each read."""
        entry, form = self.entries[name], self.form(name)
        type_ = TensorType(F32, entry.shape)
        if form.scales is not None:
            return Grid(type_, len(entry.shape) - 1, partial(self._codes, name), form.bits)

        def load() -> np.ndarray:
            return form.decode(self.data(name)).reshape(entry.shape)

        return Lazy(type_, load, f"{name} of {self.path}")

    def _codes(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        shape, form = self.entries[name].shape, self.form(name)
        codes, scales = form.codes(self.data(name))
        return codes.reshape(shape), scales.reshape(*shape[:-1], shape[-1] // form.group)

    def nbytes(self, name: str) -> int:
        """Bytes of a tensor's data."""
        return self.size(name, self.form(name))

    def size(self, name: str, form: BlockFormat) -> int:
        """Bytes of a tensor if it had another type."""
        return math.prod(self.entries[name].shape) // form.group * form.nbytes

    def data(self, name: str) -> np.ndarray:
        """A tensor's bytes, mapped."""
        start = self.entries[name].start
        return np.asarray(np.memmap(self.path, np.uint8, "r", start, (self.nbytes(name),)))


def read_gguf(path: Path) -> GgufFile:
    """Read a file's header; ImportModelError for another format or a truncated file."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = file.read(min(size, LONGEST))  # read() allocates the requested size
        return _Header(path, header, size).read()
    except (OSError, ValueError, OverflowError, struct.error) as error:
        raise ImportModelError(
            f"{path} cannot be read as GGUF: {reason_of(error)}; copy or convert it again"
        ) from error


class _Header:
    """The bytes of a header, read sequentially."""

    def __init__(self, path: Path, data: bytes, size: int) -> None:
        self._path, self._data, self._size, self._at = path, data, size, 0
        self._lists: dict[bytes, tuple[int, int]] = {}

    def read(self) -> GgufFile:
        if self._take(4) != MAGIC:
            raise ValueError("it does not begin as such a file")
        version = self._number("<I")
        if version not in VERSIONS:
            raise ValueError(f"it is of version {version}, and {VERSIONS} are read")
        tensors, keys = self._number("<Q"), self._number("<Q")
        begin, alignment = self._at, ALIGNMENT
        for _ in range(self._counted(keys, 12)):
            alignment = self._key() or alignment
        keys_data = self._data[begin : self._at]
        if alignment > 1 << 16 or alignment % 8:
            raise ValueError(f"its alignment is {alignment}")
        found: dict[str, GgufTensor] = {}
        for _ in range(self._counted(tensors, 24)):
            name, entry = self._tensor()
            if name in found:
                raise ValueError(f"it has two tensors {name!r}")
            found[name] = entry
        start = -(-self._at // alignment) * alignment
        entries = {
            name: self._placed(name, GgufTensor(e.shape, e.form, start + e.start))
            for name, e in found.items()
        }
        lists = {name: (place - begin, count) for name, (place, count) in self._lists.items()}
        return GgufFile(
            self._path, keys_data, keys, alignment=alignment, entries=entries, lists=lists
        )

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise ValueError("its header is cut short")
        self._at += size
        return self._data[self._at - size : self._at]

    def _number(self, form: str) -> int:
        return int(struct.unpack(form, self._take(struct.calcsize(form)))[0])

    def _counted(self, count: int, least: int) -> int:
        """Check that this many items of at least this size remain."""
        if count * least > len(self._data) - self._at:
            raise ValueError("its header is cut short")
        return count

    def _text(self) -> bytes:
        return self._take(self._number("<Q"))

    def _key(self) -> int | None:
        """Skip a key with its value; return the value if the key is the alignment."""
        name, kind = self._text(), self._number("<I")
        if name == _ALIGNED and kind == _U32:
            return self._number("<I")
        begin = self._at
        self._skip(kind)
        if kind == _ARRAY and self._data[begin : begin + 4] == struct.pack("<I", _F32):
            place = begin + 12  # after the type and the length
            self._lists[name] = place, (self._at - place) // 4
        return None

    def _skip(self, kind: int, count: int = 1, depth: int = 0) -> None:
        """Skip values of a type, which may be arrays of arrays."""
        if depth > DEEPEST:
            raise ValueError(f"it has arrays nested more than {DEEPEST} deep")
        if kind == _TEXT:
            for _ in range(self._counted(count, 8)):
                self._text()
        elif kind == _ARRAY:
            for _ in range(self._counted(count, 12)):
                self._skip(self._number("<I"), self._number("<Q"), depth + 1)
        else:
            self._take(self._sized(kind) * count)

    def _sized(self, kind: int) -> int:
        if kind not in _SIZES:
            raise ValueError(f"it has a value of type {kind}, which is not known")
        return _SIZES[kind]

    def _tensor(self) -> tuple[str, GgufTensor]:
        name, rank = self._text().decode("utf-8"), self._number("<I")
        if rank > _RANK:
            raise ValueError(f"{name!r} has {rank} dimensions")
        sizes = [self._number("<Q") for _ in range(rank)]
        form, offset = self._number("<I"), self._number("<Q")
        return name, GgufTensor(tuple(reversed(sizes)), form, offset)

    def _placed(self, name: str, entry: GgufTensor) -> GgufTensor:
        """Check that a tensor of a known type lies within the file, in whole blocks."""
        form, count = find_form(entry.form), math.prod(entry.shape)
        if form is None:
            return entry
        if not count or math.prod(entry.shape[-1:]) % form.group:
            raise ValueError(f"{name!r} {list(entry.shape)} has no whole blocks of {form.group}")
        if entry.start + count // form.group * form.nbytes > self._size:
            raise ValueError(f"{name!r} does not lie inside of the file")
        return entry


@dataclass(frozen=True)
class NewTensor:
    """A tensor to write: its shape in our order, its type, and its bytes on demand."""

    shape: Shape
    form: BlockFormat
    data: Callable[[], np.ndarray]

    @property
    def nbytes(self) -> int:
        """Bytes of its data."""
        return math.prod(self.shape) // self.form.group * self.form.nbytes


def write_gguf(path: Path, source: GgufFile, new: Mapping[str, Contents]) -> None:
    """Copy a file, with `new` numbers of some tensors in the same types.

    New numbers of a read-only type become Q8_0. All other tensors keep their bytes.
    """
    tensors = {}
    for name, entry in source.entries.items():
        form = source.form(name)
        form = written_form(form) if name in new else form
        data = partial(_bytes, source, name, form, new.get(name))
        tensors[name] = NewTensor(entry.shape, form, data)
    write_tensors(path, (source.keys, source.count), source.alignment, tensors)


def write_tensors(
    path: Path, keys: tuple[bytes, int], alignment: int, tensors: Mapping[str, NewTensor]
) -> None:
    """Write a file with these keys as bytes, their number, and tensors."""
    table, offset = b"", 0
    for name, tensor in tensors.items():
        table += text_bytes(name) + struct.pack("<I", len(tensor.shape))
        table += struct.pack(f"<{len(tensor.shape)}Q", *reversed(tensor.shape))
        table += struct.pack("<IQ", tensor.form.number, offset)
        offset += -(-tensor.nbytes // alignment) * alignment
    head = MAGIC + struct.pack("<IQQ", VERSIONS[-1], len(tensors), keys[1])
    with path.open("wb") as file:
        file.write(head + keys[0] + table)
        for tensor in tensors.values():
            file.write(bytes(-file.tell() % alignment))
            file.write(tensor.data().data)
        file.write(bytes(-file.tell() % alignment))


def text_key(name: str, text: str) -> bytes:
    """Return a key whose value is a text."""
    return text_bytes(name) + struct.pack("<I", _TEXT) + text_bytes(text)


def number_key(name: str, number: float) -> bytes:
    """Return a key whose value is an f32."""
    return text_bytes(name) + struct.pack("<If", _F32, number)


def whole_key(name: str, number: int) -> bytes:
    """Return a key whose value is a u32."""
    return text_bytes(name) + struct.pack("<II", _U32, number)


def text_bytes(text: str) -> bytes:
    """Return a text with its length."""
    words = text.encode()
    return struct.pack("<Q", len(words)) + words


def _bytes(source: GgufFile, name: str, form: BlockFormat, new: Contents | None) -> np.ndarray:
    if new is None:
        return source.data(name)
    assert form.encode is not None
    return form.encode(np.ascontiguousarray(new.read(), np.float32).reshape(-1))
