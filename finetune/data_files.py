"""Read arrays from untrusted .npz, .npy and .safetensors files, without unpickling."""

import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path
from tokenize import TokenError
from zipfile import BadZipFile, ZipFile

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from pockengine.devices.host import detect_memory
from pockengine.errors import FinetuneError, reason_of
from pockengine.files import data_file

_DAMAGED = (
    ArithmeticError,
    AttributeError,
    BadZipFile,
    EOFError,
    LZMAError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SafetensorError,
    SyntaxError,
    TokenError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)
"""Exceptions of NumPy, zipfile and safetensors for damaged files, found by fuzzing."""

_OBJECTS = ("Object arrays", "Python objects in dtype")
"""What NumPy's errors say of arrays of Python objects in .npz and .npy files."""


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a data file, or of a folder with one NAME.npy per array."""
    with _readable(path):
        if path.suffix == ".safetensors":
            return dict(load_file(data_file(path)))
        if path.suffix == ".npz":
            return _read_npz(path)
    files = sorted(path.glob("*.npy"))
    if files:
        return {file.stem: read_npy(file) for file in files}
    raise FinetuneError(
        f"{path} is no data file; give .npz, .safetensors, or a folder with NAME.npy of each input"
    )


def read_npy(path: Path) -> np.ndarray:
    """Return the memory-mapped array of an .npy file."""
    with _readable(path):
        return np.asarray(np.lib.format.open_memmap(data_file(path), mode="r"))


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    """Read an archive of arrays with unique names."""
    _check_unfolded(path)
    arrays: dict[str, np.ndarray] = {}
    with np.load(path, allow_pickle=False) as archive:
        names = Counter(archive.files)
        for name, count in names.items():
            if count > 1:
                raise FinetuneError(f"{path} holds {name!r} twice; write the file again")
            array = archive[name]
            if not isinstance(array, np.ndarray):
                raise FinetuneError(f"{path} holds {name!r}, which is no array; leave it out")
            arrays[name] = array
    return arrays


def _check_unfolded(path: Path) -> None:
    """Raise FinetuneError for an archive whose arrays exceed this machine's memory."""
    with ZipFile(data_file(path)) as archive:
        total = sum(entry.file_size for entry in archive.infolist())
    if total > (detect_memory() or total):
        raise FinetuneError(
            f"{path} unfolds to {total} bytes, more than this machine's memory; give a folder with "
            "NAME.npy of each input, which stays on the disk"
        )


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        reason = reason_of(error)
        if any(words in reason for words in _OBJECTS):
            reason = "it has an array of Python objects; convert it with astype and save it again"
        raise FinetuneError(f"{path} cannot be read: {reason}") from error
