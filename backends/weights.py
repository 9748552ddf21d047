"""The weights file of an artifact, written one tensor at a time: they need not fit into memory.

The bytes are those that the safetensors library writes: wider types first, then by name.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pockengine.compiler.ir.contents import Contents
from pockengine.compiler.ir.scalars import DType
from pockengine.errors import CompileError

ALIGNMENT = 8
"""Of the data in the file: the header is filled up with spaces."""

_ORDER = sorted(DType, key=lambda dtype: -dtype.itemsize)


def write_weights(tensors: Mapping[str, Contents], path: Path) -> None:
    """Write tensors by name; CompileError names one that has no numbers."""
    missing = [name for name, contents in tensors.items() if not contents.known]
    if missing:
        raise CompileError(
            f"{len(missing)} params have a shape and no numbers, {missing[0]} among them; give the "
            "graph its weights before an artifact is written"
        )
    order = {name: (_ORDER.index(held.type.dtype), name.encode()) for name, held in tensors.items()}
    names = sorted(tensors, key=lambda name: order[name])
    with path.open("wb") as file:
        file.write(_header(names, tensors))
        for name in names:
            array = np.ascontiguousarray(tensors[name].read())
            file.write(array.reshape(-1).view(np.uint8).data)


def _header(names: list[str], tensors: Mapping[str, Contents]) -> bytes:
    table, offset = {}, 0
    for name in names:
        type_ = tensors[name].type
        end = offset + type_.nbytes
        table[name] = {
            "dtype": type_.dtype.stored_name,
            "shape": list(type_.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
