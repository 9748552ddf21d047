"""Artifacts: a compiled program as a folder that can be kept, sent to a board, and loaded again.

    manifest.json          versions, entries, params, scheme, planned memory, a hash of every file
    weights.safetensors    params, states and constants as they were compiled in
    code/                  generated C and the runtime: all that a C compiler needs
    bin/                   the runner, and for the host a library

It is written beside its place and renamed, so that a folder of this name is always whole. Loading
checks everything that the manifest says. There is no pickle and no code in data.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from pockengine import __version__
from pockengine.backends.c.backend import CBackend
from pockengine.backends.c.build import Progress, build, copy_runtime
from pockengine.backends.c.program import (
    entry_inputs,
    entry_outputs,
    generate,
    param_slots,
    unique_kernels,
)
from pockengine.compiler.ir import Value
from pockengine.compiler.ir.types import DType, TensorType
from pockengine.compiler.program import Entry, Program
from pockengine.compiler.sizes import Range
from pockengine.compiler.variants import output_axes
from pockengine.errors import ArtifactError

SCHEMA = 1
MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
EXECUTABLE = "bin/pockengine-run"
LIBRARY = "bin/libprogram-*.so"


@dataclass(frozen=True)
class EntrySpec:
    """Inputs and outputs of an entry by name, in the order in which the runtime takes them."""

    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    arena_bytes: int
    lower_bound_bytes: int


@dataclass(frozen=True)
class ParamSpec:
    """A tensor of the weights file. `kind`: param, state or constant; see Param for the others."""

    type: TensorType
    kind: str
    trained: bool
    permutation: tuple[int, ...] | None


@dataclass(frozen=True)
class SizesSpec:
    """A size that varies: its range, and the dimension of each entry's outputs that has it."""

    range: Range
    outputs: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Artifact:
    """A folder whose manifest has been checked."""

    folder: Path
    name: str
    device: str
    entries: Mapping[str, EntrySpec]
    params: Mapping[str, ParamSpec]
    scheme: Mapping[str, str]
    arena_bytes: int
    params_bytes: int
    threads: int
    kernels: int
    sizes: SizesSpec | None = None

    @property
    def weights(self) -> Path:
        """The safetensors file of params, states and constants."""
        return self.folder / WEIGHTS

    @property
    def executable(self) -> Path:
        """The runner; ArtifactError when the artifact was not built."""
        return self._built(EXECUTABLE)

    @property
    def library(self) -> Path:
        """The library for sessions; ArtifactError when there is none for this device."""
        return self._built(LIBRARY)

    def _built(self, name: str) -> Path:
        found = sorted(self.folder.glob(name))
        if not found:
            raise ArtifactError(f"artifact {self.folder} for {self.device} has no {name}; build it")
        return found[0]


def write_artifact(
    program: Program,
    backend: CBackend,
    folder: Path,
    *,
    build_code: bool = True,
    progress: Progress | None = None,
) -> Artifact:
    """Generate, build and store a program; an artifact that is already there is replaced."""
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as place:
        made = Path(place) / "artifact"
        code = made / "code"
        code.mkdir(parents=True)
        for name, text in generate(program, backend).items():
            (code / name).write_text(text, encoding="utf-8")
        copy_runtime(code / "runtime")
        save_file(_ordered_weights(program), made / WEIGHTS)
        if build_code:
            build(code, backend.device, made / "bin", progress)
        manifest = _manifest(program, backend)
        manifest["files"] = {name: _hash(made / name) for name in _files(made)}
        text = json.dumps(manifest, indent=1) + "\n"
        (made / MANIFEST).write_text(text, encoding="utf-8")
        _replace(made, folder, Path(place))
    return load_artifact(folder)


def load_artifact(folder: Path) -> Artifact:
    """Read an artifact; ArtifactError names what is missing, damaged or of another schema."""
    manifest = _read_manifest(folder)
    for name, expected in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise ArtifactError(f"artifact {folder} lacks {name}; compile the model again")
        if _hash(path) != expected:
            raise ArtifactError(f"artifact {folder}: {name} is damaged; compile the model again")
    try:
        return _artifact(folder, manifest)
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"artifact {folder}: {MANIFEST} is malformed: {error!r}") from error


def read_checkpoint(artifact: Artifact, path: Path) -> dict[str, np.ndarray]:
    """Read params and states that a run of the artifact saved, on whatever board.

    ArtifactError names one that is missing or of another type.
    """
    try:
        held = load_file(path)
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ArtifactError(f"checkpoint {path} cannot be read: {error}") from error
    known = {name: spec for name, spec in artifact.params.items() if spec.kind != "constant"}
    for name, spec in known.items():
        array = held.get(name)
        if array is None or (array.shape, array.dtype) != (spec.type.shape, spec.type.dtype.numpy):
            found = "nothing" if array is None else f"{array.dtype}{list(array.shape)}"
            raise ArtifactError(
                f"checkpoint {path} has {found} for {name} ({spec.type}); it is of another program"
            )
    return {name: held[name] for name in known}


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtifactError(f"{folder} is no artifact: it has no {MANIFEST}") from None
    except (OSError, ValueError) as error:
        raise ArtifactError(f"artifact {folder}: {MANIFEST} cannot be read: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise ArtifactError(f"artifact {folder} is not of schema {SCHEMA}; compile the model again")
    files = manifest.get("files")
    if not isinstance(files, dict) or WEIGHTS not in files:
        raise ArtifactError(f"artifact {folder}: {MANIFEST} lists no files")
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in files):
        raise ArtifactError(f"artifact {folder}: {MANIFEST} names a file outside of the artifact")
    return manifest


def _artifact(folder: Path, manifest: Mapping[str, Any]) -> Artifact:
    return Artifact(
        folder=folder,
        name=str(manifest["name"]),
        device=str(manifest["device"]),
        entries={
            name: EntrySpec(
                _read_types(entry["inputs"]),
                _read_types(entry["outputs"]),
                int(entry["arena_bytes"]),
                int(entry["lower_bound_bytes"]),
            )
            for name, entry in manifest["entries"].items()
        },
        params={
            row["name"]: ParamSpec(
                _read_type(row),
                str(row["kind"]),
                bool(row["trained"]),
                None if row["permutation"] is None else tuple(row["permutation"]),
            )
            for row in manifest["params"]
        },
        scheme=dict(manifest["scheme"]),
        arena_bytes=int(manifest["arena_bytes"]),
        params_bytes=int(manifest["params_bytes"]),
        threads=int(manifest["threads"]),
        kernels=int(manifest["kernels"]),
        sizes=_read_sizes(manifest.get("sizes")),
    )


def _manifest(program: Program, backend: CBackend) -> dict[str, Any]:
    slots, params_bytes = param_slots(program)
    rows = []
    for slot in slots:
        param = program.params.get(slot.name)
        kind = (
            "constant" if param is None else "param" if _is_weight(program, slot.name) else "state"
        )
        permutation = None if param is None else param.permutation
        rows.append(
            {
                **_write_type(slot.name, slot.type),
                "kind": kind,
                "trained": slot.name in program.scheme,
                "permutation": permutation,
            }
        )
    return {
        "schema": SCHEMA,
        "pockengine": __version__,
        "name": program.name,
        "device": backend.device.name,
        "isa": backend.device.cpu.isa,
        "threads": backend.device.cpu.cores,
        "kernels": unique_kernels(program, backend),
        "params_bytes": params_bytes,
        "arena_bytes": program.arena_bytes,
        "scheme": dict(program.scheme),
        "entries": {name: _entry(entry) for name, entry in program.entries.items()},
        "sizes": None if program.sizes is None else _write_sizes(program, program.sizes),
        "params": rows,
    }


def _write_sizes(program: Program, sizes: Range) -> dict[str, Any]:
    bases = dict.fromkeys(name.rpartition("@")[0] for name in program.entries)
    outputs = {name: output_axes(program, sizes, name) for name in bases}
    return {**asdict(sizes), "outputs": outputs}


def _read_sizes(row: Mapping[str, Any] | None) -> SizesSpec | None:
    if row is None:
        return None
    values = dict(row)
    outputs = values.pop("outputs")
    return SizesSpec(Range(**{**values, "buckets": tuple(values["buckets"])}), outputs)


def _is_weight(program: Program, name: str) -> bool:
    """Whether a tensor is the user's; states are what only updates and norms read."""
    return program.params[name].trainable or not name.startswith("optimizer.")


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "inputs": _write_types(entry_inputs(entry)),
        "outputs": _write_types(entry_outputs(entry)),
        "arena_bytes": entry.plan.size,
        "lower_bound_bytes": entry.plan.lower_bound,
    }


def _write_types(values: list[tuple[str, Value]]) -> list[dict[str, Any]]:
    return [_write_type(name, value.type) for name, value in values]


def _write_type(name: str, type_: TensorType) -> dict[str, Any]:
    return {"name": name, "dtype": type_.dtype.value, "shape": list(type_.shape)}


def _read_types(rows: list[dict[str, Any]]) -> dict[str, TensorType]:
    return {row["name"]: _read_type(row) for row in rows}


def _read_type(row: Mapping[str, Any]) -> TensorType:
    return TensorType(DType(row["dtype"]), tuple(row["shape"]))


def _ordered_weights(program: Program) -> dict[str, np.ndarray]:
    slots, _ = param_slots(program)
    # ascontiguousarray alone makes an array of one dimension from a scalar.
    return {s.name: np.ascontiguousarray(s.data).reshape(s.type.shape) for s in slots}


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _replace(made: Path, folder: Path, place: Path) -> None:
    """Put `made` where `folder` is; what was there must be an artifact, and goes away."""
    if folder.exists():
        if not (folder / MANIFEST).exists() and any(folder.iterdir()):
            raise ArtifactError(f"{folder} exists and is no artifact; choose another place")
        folder.rename(place / "old")
    os.rename(made, folder)
    shutil.rmtree(place / "old", ignore_errors=True)
