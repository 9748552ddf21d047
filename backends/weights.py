"""The weights file of an artifact, written one tensor at a time, so weights need not fit in memory.

The header is padded with spaces, so the data begin at a multiple of ALIGNMENT bytes: a session that
maps the file reads its frozen tensors in place.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pockengine.compiler.ir.contents import Contents
from pockengine.compiler.target import ALIGNMENT
from pockengine.errors import CompileError

_PREFIX = 8
"""Bytes of the header's length field, at the start of the file."""


def write_weights(tensors: Mapping[str, Contents], path: Path) -> None:
    """Write tensors by name, in order; CompileError for one without numbers."""
    check_known(tensors)
    with path.open("wb") as file:
        file.write(_header(tensors))
        for contents in tensors.values():
            array = np.ascontiguousarray(contents.read())
            file.write(array.reshape(-1).view(np.uint8).data)


def check_known(tensors: Mapping[str, Contents]) -> None:
    """Raise CompileError for a tensor that has only a shape."""
    missing = [name for name, contents in tensors.items() if not contents.known]
    if missing:
        raise CompileError(
            f"{len(missing)} params have a shape and no numbers, {missing[0]} among them; give the "
            "graph its weights before an artifact is written"
        )


def _header(tensors: Mapping[str, Contents]) -> bytes:
    table, offset = {}, 0
    for name, contents in tensors.items():
        type_ = contents.type
        end = offset + type_.nbytes
        table[name] = {
            "dtype": type_.dtype.stored_name,
            "shape": list(type_.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(_PREFIX + len(text)) % ALIGNMENT)
    return len(text).to_bytes(_PREFIX, "little") + text
