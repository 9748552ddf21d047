"""The manifest of an artifact: its contents, parsed strictly as data.

For any file, reading gives a Manifest or an ArtifactError that names the fault.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn, TypeVar

from pockengine import __version__
from pockengine.backends.placement import (
    MAX_RANK,
    entry_inputs,
    entry_outputs,
    lay_out,
)
from pockengine.backends.protocol import Backend
from pockengine.backends.replace import MANIFEST
from pockengine.backends.sizes_spec import SizesSpec
from pockengine.backends.specification import Specification
from pockengine.backends.switching_report import Switching, read_switching
from pockengine.compiler.ir import Value
from pockengine.compiler.ir.blocks import Blocks
from pockengine.compiler.ir.graph import Param, ParamKind
from pockengine.compiler.ir.quantization import Quantization, parse_quantization
from pockengine.compiler.ir.types import DType, Shape, TensorType
from pockengine.compiler.program import Entry, Program
from pockengine.compiler.sizes import Range
from pockengine.compiler.sparse.choice import VARIANTS
from pockengine.compiler.sparse.lora import Adapter
from pockengine.devices.schema import DEFAULT_BACKEND
from pockengine.errors import ArtifactError, CompileError, GraphError, reason_of

SCHEMA = 4
KINDS = ("param", "state", "constant")
KIND_NAMES = {
    ParamKind.WEIGHT: "param",
    ParamKind.BUFFER: "param",
    ParamKind.OPTIMIZER: "state",
}
"""The user's tensors are params, the optimizer's are states."""

LARGEST = 1 << 62
"""Upper limit of sizes and counts, as in the runtime."""

T = TypeVar("T")


@dataclass(frozen=True)
class EntrySpec:
    """Inputs and outputs of an entry by name, in the runtime's order."""

    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    arena_bytes: int
    lower_bound_bytes: int


@dataclass(frozen=True)
class ParamSpec:
    """A tensor of the weights file. `kind`: param, state or constant; see Param for the others.

    `quantization` is the quantization of an i8 weight.
    """

    type: TensorType
    kind: str
    trained: bool
    permutation: tuple[int, ...] | None
    blocks: Blocks | None = None
    quantization: Quantization | None = None

    @property
    def shape(self) -> Shape:
        """Shape of the decoded numbers."""
        return self.type.shape if self.blocks is None else self.blocks.shape(self.type.shape)


@dataclass(frozen=True)
class Manifest:
    """Content of the file; `files` are digests by name, the runner and the library among them.

    `switching` is None if the user named the backend, or used the device's default. `isa` describes
    the instruction set of the generated code.
    """

    name: str
    device: str
    backend: str
    isa: str
    entries: Mapping[str, EntrySpec]
    params: Mapping[str, ParamSpec]
    scheme: Mapping[str, str]
    adapters: tuple[Adapter, ...]
    arena_bytes: int
    params_bytes: int
    frozen_bytes: int
    threads: int
    micro_batches: int
    kernels: int
    sizes: SizesSpec | None
    runner_file: str | None
    library_file: str | None
    files: Mapping[str, str]
    switching: Switching | None

    def specification(self) -> Specification:
        """Return the digest that the library must match."""
        entries = {name: (entry.inputs, entry.outputs) for name, entry in self.entries.items()}
        params = {name: spec.type for name, spec in self.params.items()}
        return Specification(
            entries,
            params,
            params_bytes=self.params_bytes,
            frozen_bytes=self.frozen_bytes,
            arena_bytes=self.arena_bytes,
            threads=self.threads,
            micro_batches=self.micro_batches,
        )


def manifest_of(program: Program, backend: Backend) -> dict[str, Any]:
    """Return the manifest's table, except the files."""
    layout = lay_out(program)
    facts = backend.facts(program)
    rows = []
    for slot in layout.slots:
        param = program.params.get(slot.name)
        kind = "constant" if param is None else KIND_NAMES[param.kind]
        permutation = None if param is None else param.permutation
        rows.append(
            {
                **_write_type(slot.name, slot.type),
                "kind": kind,
                "trained": slot.name in program.scheme,
                "permutation": permutation,
                **({} if param is None else _write_storage(param)),
            }
        )
    return {
        "schema": SCHEMA,
        "pockengine": __version__,
        "name": program.name,
        "device": backend.device.name,
        **_write_backend(backend.device.backend),
        "isa": facts.isa,
        "threads": facts.threads,
        "micro_batches": program.micro_batches,
        "kernels": facts.kernels,
        "params_bytes": layout.params_bytes,
        "frozen_bytes": layout.frozen_bytes,
        "arena_bytes": program.arena_bytes,
        "scheme": dict(program.scheme),
        "adapters": list(map(_adapter_row, program.adapters)),
        "entries": {name: _entry(entry) for name, entry in program.entries.items()},
        "sizes": None if program.sizes is None else _write_sizes(program, program.sizes),
        "params": rows,
    }


def _write_storage(param: Param) -> dict[str, Any]:
    blocks = {} if param.blocks is None else {"blocks": asdict(param.blocks)}
    return blocks if param.quantization is None else {**blocks, "held": str(param.quantization)}


def _write_backend(name: str) -> dict[str, str]:
    """Write the backend's name, unless it is the default of a manifest without one."""
    return {} if name == DEFAULT_BACKEND else {"backend": name}


def _write_sizes(program: Program, sizes: Range) -> dict[str, Any]:
    return {**asdict(sizes), "outputs": program.sized}


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


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an artifact; ArtifactError names the fault."""
    path = folder / MANIFEST
    try:
        if not path.is_file():
            fact = f"it has no {MANIFEST}" if folder.is_dir() else "there is no such folder"
            raise ArtifactError(f"{folder} is no artifact: {fact}; compile a model to one")
        text = path.read_text(encoding="utf-8")
        table = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
    except (OSError, ValueError, RecursionError) as error:
        raise ArtifactError(
            f"artifact {folder}: {MANIFEST} cannot be read: {reason_of(error)}"
        ) from error
    if not isinstance(table, dict) or table.get("schema") != SCHEMA:
        raise ArtifactError(f"artifact {folder} is not of schema {SCHEMA}; compile the model again")
    try:
        return _manifest(table)
    except (ValueError, SyntaxError, CompileError, GraphError) as error:
        raise ArtifactError(f"artifact {folder}: {MANIFEST} is malformed: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name stands twice in one table")
    return table


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _manifest(table: Mapping[str, Any]) -> Manifest:
    files = _get(table, "files", dict)
    entries = _each(_get(table, "entries", dict), _read_entry)
    return Manifest(
        name=_get(table, "name", str),
        device=_get(table, "device", str),
        backend=_text(table.get("backend", DEFAULT_BACKEND)),
        isa=_text(table.get("isa", "")),
        entries=entries,
        params=_read_rows(_get(table, "params", list), _read_param),
        scheme=_each(_get(table, "scheme", dict), _text),
        adapters=tuple(map(_read_adapter, _get(table, "adapters", list))),
        arena_bytes=_count(table, "arena_bytes"),
        params_bytes=_count(table, "params_bytes"),
        frozen_bytes=_count(table, "frozen_bytes"),
        threads=_count(table, "threads", 1),
        micro_batches=_count(table, "micro_batches", 1),
        kernels=_count(table, "kernels"),
        sizes=_read_sizes(table.get("sizes"), entries),
        runner_file=_built(table, "executable", files),
        library_file=_built(table, "library", files),
        files={_inside(name): _text(digest) for name, digest in files.items()},
        switching=read_switching(table.get("switching")),
    )


def _get(table: Mapping[str, Any], key: str, kind: type[T]) -> T:
    """Return the value of a key; ValueError if it is missing or not of exactly this type."""
    value = table.get(key) if isinstance(table, dict) else None
    if type(value) is not kind:
        raise ValueError(f"{key} must be a {kind.__name__}, not {type(value).__name__}")
    return value


def _count(table: Mapping[str, Any], key: str, least: int = 0) -> int:
    value = _get(table, key, int)
    if not least <= value < LARGEST:
        raise ValueError(f"{key} must be from {least} to 2^62")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text, not {type(value).__name__}")
    return value


def _each(table: Mapping[str, Any], read: Callable[[Any], T]) -> dict[str, T]:
    return {name: read(value) for name, value in table.items()}


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or str(path) != name:
        raise ValueError(f"{name!r} is a file outside of the artifact")
    return name


def _built(table: Mapping[str, Any], key: str, files: Mapping[str, Any]) -> str | None:
    name = table.get(key)
    if name is not None and (not isinstance(name, str) or name not in files):
        raise ValueError(f"{key} is not one of the files")
    return name


def _read_rows(rows: list[Any], read: Callable[[Mapping[str, Any]], T]) -> dict[str, T]:
    return _unique([(_get(row, "name", str), read(row)) for row in rows])


def _read_entry(table: Any) -> EntrySpec:
    return EntrySpec(
        _read_rows(_get(table, "inputs", list), _read_type),
        _read_rows(_get(table, "outputs", list), _read_type),
        _count(table, "arena_bytes"),
        _count(table, "lower_bound_bytes"),
    )


def _read_param(row: Mapping[str, Any]) -> ParamSpec:
    type_, permutation = _read_type(row), row.get("permutation")
    if permutation is not None and (
        not isinstance(permutation, list)
        or any(type(axis) is not int for axis in permutation)
        or sorted(permutation) != list(range(type_.rank))
    ):
        raise ValueError(f"{row['name']}: its permutation is not one of its axes")
    kind = _get(row, "kind", str)
    if kind not in KINDS:
        raise ValueError(f"{row['name']}: its kind is not one of {', '.join(KINDS)}")
    order = None if permutation is None else tuple(permutation)
    trained, stored = _get(row, "trained", bool), _read_integers(row, type_)
    blocks = _read_blocks(row, type_)
    return ParamSpec(type_, kind, trained, permutation=order, blocks=blocks, quantization=stored)


def _read_integers(row: Mapping[str, Any], type_: TensorType) -> Quantization | None:
    """Read a quantization; GraphError if it is invalid."""
    if "held" not in row:
        return None
    quantization = parse_quantization(_get(row, "held", str))
    quantization.check(type_.dtype, type_.shape)
    return quantization


def _read_blocks(row: Mapping[str, Any], type_: TensorType) -> Blocks | None:
    """Read the block format of a tensor of codes; ValueError if its type differs."""
    if "blocks" not in row:
        return None
    table = _get(row, "blocks", dict)
    blocks = Blocks(_count(table, "bits"), _count(table, "axis"))
    if blocks.axis >= type_.rank or blocks.types(blocks.shape(type_.shape))[0] != type_:
        raise ValueError(f"{row['name']}: {type_} is none of {blocks}")
    return blocks


def _adapter_row(adapter: Adapter) -> dict[str, Any]:
    """Return an adapter as a row; a variant that it lacks is left out."""
    return {name: v for name, v in asdict(adapter).items() if name not in VARIANTS or v}


def _read_adapter(row: Mapping[str, Any]) -> Adapter:
    alpha = row.get("alpha") if isinstance(row, dict) else None
    if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not 0 < alpha < LARGEST:
        raise ValueError("alpha of an adapter must be a number above 0")
    names = _get(row, "weight", str), _count(row, "rank", 1), float(alpha)
    variants = (name in row and _get(row, name, bool) for name in VARIANTS)
    return Adapter(*names, _count(row, "seed"), _get(row, "transposed", bool), *variants)


def _read_type(row: Mapping[str, Any]) -> TensorType:
    shape = _get(row, "shape", list)
    sound = len(shape) <= MAX_RANK and all(type(size) is int and size > 0 for size in shape)
    if not sound:
        raise ValueError(f"{row['name']}: its shape is not valid")
    type_ = TensorType(DType(_get(row, "dtype", str)), tuple(shape))
    if type_.nbytes >= LARGEST:
        raise ValueError(f"{row['name']}: its shape is too large")
    return type_


def _read_sizes(row: Any, entries: Mapping[str, EntrySpec]) -> SizesSpec | None:
    if row is None:
        return None
    buckets = _get(row, "buckets", list)
    pad = _get(row, "pad", dict)
    if any(type(value) not in (int, float) for value in pad.values()):
        raise ValueError("pad must hold numbers")
    if any(type(bucket) is not int for bucket in buckets):
        raise ValueError("buckets must be whole numbers")
    known = Range(
        _get(row, "name", str),
        _count(row, "low", 1),
        _count(row, "high", 1),
        axes=_axes(_get(row, "axes", dict)),
        buckets=tuple(buckets),
        pad=pad,
    )
    sizes = SizesSpec(known, _each(_get(row, "outputs", dict), _places))
    sizes.check(entries)
    return sizes


def _axes(table: Any) -> dict[str, int]:
    if not isinstance(table, dict):
        raise ValueError("dimensions must be a table")
    return {name: _count(table, name) for name in table}


def _places(table: Any) -> dict[str, tuple[int, ...]]:
    if not isinstance(table, dict):
        raise ValueError("dimensions of outputs must be a table")
    rows = {name: _get(table, name, list) for name in table}
    return {name: tuple(_count({name: axis}, name) for axis in axes) for name, axes in rows.items()}
