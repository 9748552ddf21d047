"""Artifacts: a compiled program as a folder that can be stored, sent to a board, and loaded.

    manifest.json          versions, entries, params, scheme, planned memory, a hash of every file
    weights.safetensors    initial params, states and constants
    code/                  generated code: for C, everything that a C compiler needs
    bin/                   build results: for C the runner, and for the host a library
    include/, lib/         the program as a library for C and C++

It is written beside its destination and moved there atomically, so a folder of this name is always
complete. Loading checks everything against the manifest. There is no pickle and no code in data.
"""

import dataclasses
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pockengine.backends import replace
from pockengine.backends.capacity import check_capacity
from pockengine.backends.manifest import (
    EntrySpec,
    Manifest,
    ParamSpec,
    manifest_of,
    read_manifest,
)
from pockengine.backends.placement import lay_out
from pockengine.backends.protocol import Backend, Progress
from pockengine.backends.replace import MANIFEST, check_replaceable, hash_file, steady
from pockengine.backends.sizes_spec import SizesSpec
from pockengine.backends.switching_report import Switching
from pockengine.backends.weights import write_weights
from pockengine.compiler.program import Program
from pockengine.errors import ArtifactError, reason_of
from pockengine.files import private_folder, sync, whole_path, write_text_whole

__all__ = ["Artifact", "EntrySpec", "ParamSpec", "SizesSpec", "load_artifact", "write_artifact"]

WEIGHTS = "weights.safetensors"

SYNCS = 16
"""Files synced concurrently. The disk merges the writes: 200 files take 0.05 s instead of 1 s."""

_AGAIN = "delete it, and compile the model again"


@dataclass(frozen=True)
class Artifact(Manifest):
    """A folder whose manifest has been checked."""

    folder: Path

    def __repr__(self) -> str:
        weights = [spec for spec in self.params.values() if spec.kind == "param"]
        trained = sum(spec.trained for spec in weights)
        return (
            f"{self.name} for {self.device} ({self.isa}), {self.threads} threads at most\n"
            f"  entries: {', '.join(self.entries)}\n"
            f"  {len(weights)} params, {trained} of them trained; {self.params_bytes:,} bytes of "
            f"memory for them, {self.frozen_bytes:,} frozen, arena {self.arena_bytes:,} bytes\n"
            f"  {self.folder}"
        )

    @property
    def weights(self) -> Path:
        """The safetensors file of params, states and constants."""
        return self.folder / WEIGHTS

    @property
    def executable(self) -> Path:
        """The runner; ArtifactError if the artifact was not built."""
        return self._built("runner", self.runner_file, "build its code")

    @property
    def library(self) -> Path:
        """The library for sessions; ArtifactError if there is none for this machine."""
        fix = "train by its runner on the device, or compile for host"
        return self._built("library for sessions here", self.library_file, fix)

    def _built(self, kind: str, name: str | None, fix: str) -> Path:
        if name is None:
            raise ArtifactError(f"artifact {self.folder} for {self.device} has no {kind}; {fix}")
        return self.folder / name


def check_place(folder: Path) -> None:
    """Raise ArtifactError unless an artifact can be written here; call it before long work."""
    folder = Path(os.path.abspath(folder))
    try:
        check_replaceable(folder)
        parent = next(parent for parent in folder.parents if parent.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise ArtifactError(f"{folder} cannot be written: {parent} is no folder of yours")
    except OSError as error:
        raise ArtifactError(f"{folder} cannot be written: {reason_of(error)}") from error


def write_artifact(
    program: Program,
    backend: Backend,
    folder: Path,
    *,
    build_code: bool = True,
    progress: Progress | None = None,
    switching: Switching | None = None,
    approve: Callable[[Artifact], None] = lambda artifact: None,
) -> Artifact:
    """Generate, build and store a program; an existing artifact is replaced.

    `switching` is how its backend was chosen, if automatically. `approve` is called with the
    artifact before it is installed; if it raises, nothing is left. ArtifactError if something else
    is at this path, or it cannot be written; CompileError if the program does not fit the target's
    memory.
    """
    folder = Path(os.path.abspath(folder))
    check_place(folder)
    check_capacity(program, backend.target())
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with private_folder(folder, lambda place: replace.clean(place, folder)) as place:
            made = place / replace.MAKING
            _make(
                program,
                backend,
                made,
                progress=progress,
                build_code=build_code,
                switching=switching,
            )
            artifact = _opened(made)
            approve(artifact)
            replace.put(folder, place)
    except OSError as error:
        raise ArtifactError(f"{folder} cannot be written: {reason_of(error)}") from error
    return dataclasses.replace(artifact, folder=folder)


def _make(
    program: Program,
    backend: Backend,
    made: Path,
    progress: Progress | None,
    build_code: bool,
    switching: Switching | None,
) -> None:
    code = made / "code"
    code.mkdir(parents=True)
    backend.write(program, code)
    write_weights(lay_out(program).in_file, made / WEIGHTS)
    built = backend.build(code, made / "bin", progress) if build_code else None
    if build_code:
        backend.package(program, code, made)
    manifest = manifest_of(program, backend)
    if switching is not None:
        manifest["switching"] = switching.table()
    manifest["executable"] = built and built.executable and _name(built.executable, made)
    manifest["library"] = built and built.library and _name(built.library, made)
    files = sorted(path for path in made.rglob("*") if path.is_file())
    manifest["files"] = {_name(path, made): hash_file(path) for path in files}
    write_text_whole(made / MANIFEST, json.dumps(manifest, indent=1, allow_nan=False) + "\n")
    folders = (Path(parent) for parent, _, _ in os.walk(made))
    with ThreadPoolExecutor(SYNCS) as pool:
        list(pool.map(sync, (*files, made / MANIFEST, *folders)))


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def load_artifact(folder: Path) -> Artifact:
    """Read an artifact; ArtifactError if a file is missing, damaged or of another schema."""
    whole_path(folder, ArtifactError)
    try:
        return steady(folder, lambda: _load(folder))
    except NotADirectoryError as error:
        fact = "it is a file" if folder.exists() else reason_of(error)
        raise ArtifactError(f"{folder} is no artifact: {fact}; compile a model to one") from error


def _load(folder: Path) -> Artifact:
    artifact = _opened(folder)
    for name, expected in artifact.files.items():
        path = folder / name
        try:
            if not path.is_file():
                raise ArtifactError(f"artifact {folder} lacks {name}; {_AGAIN}")
            if hash_file(path) != expected:
                raise ArtifactError(f"artifact {folder}: {name} is damaged; {_AGAIN}")
        except OSError as error:
            raise ArtifactError(
                f"artifact {folder}: {name} cannot be read: {reason_of(error)}"
            ) from error
    return artifact


def _opened(folder: Path) -> Artifact:
    """Read the manifest without checking the files that it lists."""
    manifest = read_manifest(folder)
    if WEIGHTS not in manifest.files:
        raise ArtifactError(f"artifact {folder}: {MANIFEST} lists no {WEIGHTS}")
    return Artifact(**vars(manifest), folder=folder)
