"""Checkpoints with arbitrary texts under valid checksums."""

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

DTYPES = {"float32": "F32", "int32": "I32", "int64": "I64", "bool": "BOOL"}


def texts_of(path: Path) -> dict[str, str]:
    """Return a checkpoint's texts without its checksums."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        texts: dict[str, str] = json.loads(file.read(length))["__metadata__"]
    return {key: text for key, text in texts.items() if key not in SUMS}


SUMS = ("pockengine.header", "pockengine.tensors")


def write_sealed(path: Path, arrays: Mapping[str, np.ndarray], texts: Mapping[str, str]) -> None:
    """Write a checkpoint with these texts."""
    rows, sums, data = {}, "", b""
    for name, array in arrays.items():
        content = np.ascontiguousarray(array).tobytes()
        offsets = [len(data), len(data) + len(content)]
        shape = list(array.shape)
        rows[name] = {"dtype": DTYPES[str(array.dtype)], "shape": shape, "data_offsets": offsets}
        sums += f"{zlib.crc32(content):08x}"
        data += content
    seal = {"pockengine.header": "0" * 8, "pockengine.tensors": sums}
    table = {"__metadata__": {**seal, **texts}, **rows}
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    prefix = struct.pack("<Q", len(text))
    digits = f"{zlib.crc32(prefix + text):08x}".encode()
    path.write_bytes(prefix + text.replace(b"0" * 8, digits, 1) + data)
