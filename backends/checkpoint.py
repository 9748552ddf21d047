"""Read, check and write checkpoints without a session.

Their format and checksums are described in pe_checkpoint.h and pe_safetensors.h of the C runtime.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from pockengine.backends.artifact import Artifact
from pockengine.compiler.ir.contents import mapped
from pockengine.compiler.ir.scalars import DType
from pockengine.errors import ArtifactError, GraphError, reason_of
from pockengine.files import data_file

Arrays = dict[str, np.ndarray]

SEAL = b'{"__metadata__":{"pockengine.header":"'
SUMS = b'","pockengine.tensors":"'
_PREFIX, _DIGITS, _ALIGNMENT = 8, 8, 8


def read_checkpoint(artifact: Artifact, path: Path) -> Arrays:
    """Read params and states that a run of the artifact saved, on any board.

    Frozen params, which a checkpoint omits, are taken from the artifact. ArtifactError names a
    tensor that is damaged, missing or of another type.
    """
    return read_sealed(artifact, path)[0]


def read_sealed(artifact: Artifact, path: Path) -> tuple[Arrays, Mapping[str, str]]:
    """Read a checkpoint and its progress texts."""
    try:
        tensors, texts = read_tensors(data_file(Path(path))), check_seal(Path(path).read_bytes())
    except (
        OSError,
        SafetensorError,
        GraphError,
        AttributeError,
        LookupError,
        ValueError,
        TypeError,
    ) as error:
        raise ArtifactError(f"checkpoint {path} cannot be read: {reason_of(error)}") from error
    known = [name for name, spec in artifact.params.items() if spec.kind != "constant"]
    trained = texts.get("pockengine.content") == "trained"
    missing = [] if trained else [name for name in known if name not in tensors]
    if missing:
        raise ArtifactError(
            f"checkpoint {path} has nothing for {missing[0]}; it belongs to another program"
        )
    _check_types(artifact, tensors, path)
    if trained:
        tensors = _on_frozen(artifact, tensors, texts, path)
    return {name: tensors[name] for name in known}, texts


def read_tensors(path: Path) -> Arrays:
    """Read a safetensors file, including bf16, which the library's NumPy reader lacks."""
    with safe_open(path, "np"):  # its library is strict about the header
        return {name: np.array(contents.read()) for name, contents in mapped(Path(path)).items()}


def check_seal(data: bytes) -> Mapping[str, str]:
    """Verify a file's checksums and return its texts; ValueError names a mismatch."""
    (length,) = struct.unpack_from("<Q", data)
    header = data[_PREFIX : _PREFIX + length]
    table: dict[str, Any] = json.loads(header)
    texts: dict[str, str] = table.pop("__metadata__", {})
    if not header.startswith(SEAL):
        if int(texts.get("pockengine.checkpoint", "1")) > 1:
            raise ValueError("it has lost its checksums: something else wrote it again")
        return texts
    place = _PREFIX + len(SEAL)
    zeroed = data[:place] + b"0" * _DIGITS + data[place + _DIGITS : _PREFIX + length]
    if _digits(zeroed) != texts["pockengine.header"]:
        raise ValueError("it is damaged: the checksum of its header does not fit")
    sums = texts["pockengine.tensors"]
    for index, (name, row) in enumerate(table.items()):
        begin, end = (_PREFIX + length + offset for offset in row["data_offsets"])
        if _digits(data[begin:end]) != sums[_DIGITS * index : _DIGITS * (index + 1)]:
            raise ValueError(f"it is damaged: the checksum of {name} does not fit")
    return texts


def sealed(tensors: Arrays, texts: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the bytes of a checkpoint with these contents, under checksums."""
    table, offset = {}, 0
    for name, array in tensors.items():
        end = offset + array.nbytes
        dtype, shape = DType.of(array).stored_name, list(array.shape)
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    sums = "".join(_digits(array.tobytes()) for array in tensors.values()).encode()
    body = json.dumps({**{"__metadata__": texts}, **table}, ensure_ascii=False)
    begin = SEAL + b"0" * _DIGITS + SUMS + sums + b'",'
    header = begin + body.encode().removeprefix(b'{"__metadata__": {')
    header += b" " * (-len(header) % _ALIGNMENT)
    length = struct.pack("<Q", len(header))
    digits = _digits(length + header).encode()
    yield length + SEAL + digits + header[len(SEAL) + _DIGITS :]
    for array in tensors.values():
        yield array.tobytes()


def checksum_of(frozen: Arrays) -> str:
    """Return the checksum of the frozen params, in the artifact's order."""
    crc = 0
    for array in frozen.values():
        crc = zlib.crc32(array.tobytes(), crc)
    return f"{crc:08x}"


def _digits(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"


def _check_types(artifact: Artifact, tensors: Arrays, path: Path) -> None:
    for name, array in tensors.items():
        spec = artifact.params.get(name)
        if spec is None:
            raise ArtifactError(
                f"checkpoint {path} holds {name}, which {artifact.name} does not have"
            )
        if (array.shape, array.dtype) != (spec.type.shape, spec.type.dtype.numpy):
            raise ArtifactError(
                f"checkpoint {path} has {array.dtype}{list(array.shape)} for {name} ({spec.type}); "
                "it belongs to another program"
            )


def _on_frozen(artifact: Artifact, trained: Arrays, texts: Mapping[str, str], path: Path) -> Arrays:
    """Add the artifact's frozen weights; they must be those of the checkpoint."""
    weights = read_tensors(artifact.weights)
    known = (name for name, spec in artifact.params.items() if spec.kind != "constant")
    frozen = {name: weights[name] for name in known if name not in trained}
    if checksum_of(frozen) != texts.get("pockengine.frozen"):
        raise ArtifactError(
            f"checkpoint {path} was trained on top of other frozen weights than the artifact's"
        )
    return {**frozen, **trained}
