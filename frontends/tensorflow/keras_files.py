"""Check Keras files before Keras reads them: a file must not name code or other files.

A .keras file is a zip of a description and of weights in HDF5, an .h5 file holds both. A
description may name only Keras's own layers, and classes that the user has registered in this
process.
"""

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import keras

from pockengine.errors import ImportModelError
from pockengine.frontends.tensorflow.keras2 import in_words_of_keras3

OWN_MODULES = frozenset(
    {
        "keras",
        "keras.activations",
        "keras.constraints",
        "keras.initializers",
        "keras.layers",
        "keras.losses",
        "keras.metrics",
        "keras.models",
        "keras.optimizers",
        "keras.optimizers.schedules",
        "keras.regularizers",
        "keras.src.models.functional",
        "keras.src.models.model",
        "keras.src.models.sequential",
    }
)
OWN_OPERATIONS = re.compile(r"keras\.src\.ops\.(core|linalg|math|nn|numpy)")
"""Operations as layers, which Keras stores under their defining module."""
NAME = re.compile(r"[A-Za-z_]\w*")
_CODE = """
    FlaxLayer HashedCrossing IndexLookup IntegerLookup JaxLayer Lambda StringLookup TFSMLayer
    TextVectorization TorchModuleWrapper __lambda__ __typespec__
"""
CODE = frozenset(_CODE.split())
"""Classes that contain code, or read other files."""
MOST_CONFIG = 64 << 20
MOST_ENTRIES = 10_000
ROOMY = 256 << 20
"""Bytes that a file may always unfold to; beyond that, `FOLDED` times its size."""
FOLDED = 100


def checked_description(path: Path) -> dict[str, Any] | None:
    """Return the model that a file of Keras 2 describes, in Keras 3's words; None for Keras 3's.

    ImportModelError for a .keras or .h5 file that names code, other files, or unfolds.
    """
    if path.suffix == ".keras":
        return _checked_zip(path)
    with h5py.File(path, "r") as file:
        _check_hdf5(path, file, path.stat().st_size)
        text, version = file.attrs.get("model_config"), file.attrs.get("keras_version", "")
    if text is None:
        raise ImportModelError(
            f"{path} holds weights and no model; load them into a model, and give that"
        )
    return _checked_config(path, text, _text(version))


def _text(part: str | bytes) -> str:
    return part.decode() if isinstance(part, bytes) else str(part)


def _checked_zip(path: Path) -> dict[str, Any] | None:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        total = sum(entry.file_size for entry in entries)
        if len(entries) > MOST_ENTRIES or total > max(ROOMY, FOLDED * path.stat().st_size):
            raise ImportModelError(
                f"{path} unfolds to {len(entries)} files of {total} bytes, more than a model has"
            )
        for entry in entries:
            parts = entry.filename.replace("\\", "/").split("/")
            if ".." in parts or entry.filename.startswith(("/", "\\")) or ":" in parts[0]:
                raise ImportModelError(f"{path} holds a file outside of itself: {entry.filename!r}")
        config = archive.getinfo("config.json")
        if config.file_size > MOST_CONFIG:
            raise ImportModelError(f"{path} describes its model in {config.file_size} bytes")
        version = json.loads(archive.read("metadata.json"))["keras_version"]
        description = _checked_config(path, archive.read(config), str(version))
        for entry in entries:
            if entry.filename.endswith(".h5"):
                with archive.open(entry) as stream, h5py.File(_seekable(stream), "r") as file:
                    _check_hdf5(path, file, entry.file_size)
    return description


def _seekable(file: Any) -> BinaryIO:
    """Return a file of an archive as a seekable stream for HDF5."""
    stream: BinaryIO = file
    return stream


def _check_hdf5(path: Path, file: h5py.File, size: int) -> None:
    """Refuse links that leave the file, external data, and sizes larger than the data."""
    total = 0
    for group, name in _entries(file):
        link = group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise ImportModelError(f"{path} links to other data at {group.name}/{name}: {link}")
        entry = group[name]
        if not isinstance(entry, h5py.Dataset):
            continue
        if entry.external or entry.is_virtual:
            raise ImportModelError(f"{path} keeps {entry.name} in another file; save it in one")
        total += int(entry.size or 0) * entry.dtype.itemsize
    if total > max(ROOMY, FOLDED * size):
        raise ImportModelError(f"{path} unfolds from {size} to {total} bytes; save it again")


def _entries(file: h5py.File) -> Iterator[tuple[h5py.Group, str]]:
    """Yield each name with its group; a group that occurred before is skipped."""
    waiting, seen = [file["/"]], set()
    while waiting:
        group = waiting.pop()
        if group.id.__hash__() in seen:
            continue
        seen.add(group.id.__hash__())
        for name in group:
            yield group, name
            if isinstance(group.get(name, getlink=True), h5py.HardLink):
                inner = group[name]
                waiting += [inner] if isinstance(inner, h5py.Group) else []


def _checked_config(path: Path, text: str | bytes, version: str) -> dict[str, Any] | None:
    """Walk the description of a model."""
    try:
        config = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise ImportModelError(
            f"{path} is damaged: its description is no JSON: {error}; save the model again"
        ) from error
    older = version.startswith("2.")
    if older:
        config.pop("compile_config", None)
        config = in_words_of_keras3(config)
    waiting = [config]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if "class_name" in part:
                _check_class(path, part)
            waiting += [value for key, value in part.items() if key != "compile_config"]
        elif isinstance(part, list):
            waiting += part
    return config if older else None


def _check_class(path: Path, part: dict[str, Any]) -> None:
    """Refuse a class or function that is neither Keras's own nor the user's."""
    name, module, registered = (part.get(k) for k in ("class_name", "module", "registered_name"))
    inner = part.get("config")
    label = inner.get("name") if isinstance(inner, dict) else None
    where = f"{path}: the {name} {label!r}" if label else f"{path}: {name}"
    for known in (registered, name):
        if isinstance(known, str) and keras.saving.get_registered_object(known) is not None:
            return
    if not isinstance(name, str) or name.split(">")[-1] in CODE:
        raise ImportModelError(
            f"{where} holds code or reads other files, which a model's file may not; build the "
            "model in Python, load its weights, and give that"
        )
    own = module is None or module in OWN_MODULES or OWN_OPERATIONS.fullmatch(str(module))
    if not own or (module is None and registered is not None):
        raise ImportModelError(
            f"{where} is of {module or registered}, not Keras's own; register it by "
            "keras.saving.register_keras_serializable, or build the model in Python"
        )
    if not NAME.fullmatch(name):
        raise ImportModelError(f"{where} is no name of a class")
