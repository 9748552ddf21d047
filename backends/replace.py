"""Replace an artifact atomically: at any moment a complete one is there, and nothing is lost.

An artifact's files are those in its manifest, with matching hashes. Only these are ever removed. If
a folder has any other file, it is the user's, and the folder is not replaced.
"""

import ctypes
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pockengine.errors import ArtifactError
from pockengine.files import whole_path

T = TypeVar("T")

MANIFEST = "manifest.json"

MAKING, OLD = "artifact", "old"
"""In a writer's private folder: the artifact in progress, and the one that it replaced."""

NAMED = 4
"""Maximum number of files that an error names."""

_AT_FDCWD = -100
_EXCHANGE = 2
"""AT_FDCWD and RENAME_EXCHANGE of Linux."""


def check_replaceable(folder: Path) -> None:
    """Raise ArtifactError unless an artifact may be written here without losing anything else."""
    whole_path(folder, ArtifactError)
    if folder.is_symlink():
        raise ArtifactError(f"{folder} is a link; name the folder that it points to")
    if folder.exists() and not folder.is_dir():
        raise ArtifactError(f"{folder} is no folder; choose another place")
    steady(folder, lambda: _refuse(folder, list(_others(folder))))


def _refuse(folder: Path, others: Sequence[Path]) -> None:
    if others:
        more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
        names = ", ".join(str(path.relative_to(folder)) for path in others[:NAMED])
        raise ArtifactError(
            f"{folder} exists and is not an unmodified artifact: it contains {names}{more}; "
            "move that away, or choose another place"
        )


def steady(folder: Path, look: Callable[[], T]) -> T:
    """Return the result of `look` at a folder; retry if the folder was replaced meanwhile."""
    while True:
        handle = None
        try:
            with suppress(FileNotFoundError):
                handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            outcome = look()
            if _is_still(folder, handle):
                return outcome
        except (ArtifactError, FileNotFoundError):
            if _is_still(folder, handle):
                raise
        finally:
            if handle is not None:
                os.close(handle)


def _is_still(folder: Path, handle: int | None) -> bool:
    """Whether a path still leads to the open folder; its inode is not reused while it is open."""
    try:
        there = folder.stat()
    except FileNotFoundError:
        return handle is None
    return handle is not None and os.path.samestat(there, os.fstat(handle))


def put(folder: Path, place: Path) -> None:
    """Move `place/artifact` to `folder`; an existing artifact there moves to `place`."""
    while not _try_put(folder, place):  # another writer was faster
        pass


def _try_put(folder: Path, place: Path) -> bool:
    check_replaceable(folder)
    made = place / MAKING
    try:
        if not folder.exists():
            os.rename(made, folder)
            return True
        exchange(made, folder, place / OLD)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    old = made if made.exists() else place / OLD
    others = list(_others(old))
    if others:  # written there in the meantime
        exchange(old, folder, place / "mine")
        _refuse(old, others)
    return True


def exchange(one: Path, other: Path, spare: Path) -> None:
    """Exchange two folders atomically; if the system cannot, through `spare`."""
    try:
        _exchange(one, other)
    except NotImplementedError:
        os.rename(other, spare)
        os.rename(one, other)


def _exchange(one: Path, other: Path) -> None:
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise NotImplementedError
    names = (os.fsencode(one), os.fsencode(other))
    if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE) != 0:
        code = ctypes.get_errno()
        if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise NotImplementedError
        raise OSError(code, os.strerror(code), str(other))


def clean(place: Path, folder: Path) -> None:
    """Remove a writer's private folder: the artifact in progress, and an artifact's own files."""
    old = place / OLD
    if old.exists() and not folder.exists():  # killed between two renames
        os.rename(old, folder)
    for part in place.iterdir():
        if (part / MANIFEST).exists():
            _remove_own(part)
        elif part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink()
    _remove_empty(place)


def _remove_own(folder: Path) -> None:
    others = set(_others(folder))
    paths = [path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()]
    for path in sorted(paths, key=lambda path: path == folder / MANIFEST):  # the manifest last
        if path not in others:
            path.unlink()
    _remove_empty(folder)


def _remove_empty(folder: Path) -> None:
    for parent, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(parent)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def _others(folder: Path) -> Iterator[Path]:
    """Files in a folder that do not belong to the artifact, or were changed."""
    own = _listed(folder)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() and not path.is_symlink():
            continue
        if own and name == MANIFEST:
            continue
        if path.is_symlink() or not path.is_file() or own.get(name) != hash_file(path):
            yield path


def _listed(folder: Path) -> Mapping[str, str]:
    """Digests of the files in a manifest, of any schema version; {} without a manifest.

    Other keys are ignored, since the manifest may be of an older version.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        return {str(name): str(digest) for name, digest in manifest["files"].items()}
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return {}


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
