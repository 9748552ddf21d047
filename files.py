"""Atomic files and folders: a kill at any moment leaves the old one or the new one.

Python writes every persistent file with `write_whole`, makes every shared folder with `place_once`,
and reads every TOML file with `read_toml`.

A file in progress lies in a hidden folder of its own beside its target, so two writers never share
a name. A writer locks its folder, and the system releases the lock when the process ends. An
unlocked folder was left by a killed writer; the next writer of that target removes it.
"""

import fcntl
import hashlib
import os
import shutil
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

Write = Callable[[Path], None]
Clean = Callable[[Path], None]


LARGEST_INTEGER = 1 << 63


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; OSError or ValueError for anything else."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        _check_integers(table)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return table


def _check_integers(value: Any) -> None:
    """Raise ValueError for an integer above TOML's 64 bits; Python may not even print it."""
    if isinstance(value, int) and not -LARGEST_INTEGER <= value < LARGEST_INTEGER:
        raise ValueError("an integer has more than 64 bits")
    items = value.values() if isinstance(value, dict) else value
    for item in items if isinstance(value, dict | list) else ():
        _check_integers(item)


def whole_path(path: Path | str, failure: type[Exception] = OSError) -> Path:
    """Return a path; `failure` for one with a NUL, at which C would cut it, or that cannot be
    encoded.
    """
    try:
        cut = b"\0" in os.fsencode(path)
    except UnicodeError as error:
        raise failure(
            f"the path {os.fspath(path)!a} is no name in the encoding of files, "
            f"{sys.getfilesystemencoding()}; set a locale in UTF-8, or rename it"
        ) from error
    if cut:
        raise failure(f"the path {os.fspath(path)!r} holds a NUL character; leave it out")
    return Path(path)


def data_file(path: Path) -> Path:
    """Return the path of a file to read; OSError for a pipe or a device, which may never end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(f"{path} is a pipe or a device; copy what it gives to a file")
    return path


def write_whole(path: Path, write: Write) -> None:
    """Write a file by `write`, which receives the path to write to, and move it to `path`.

    A link at `path` is replaced, what it points to stays: pe_st_place.c has the same rule. OSError
    if that fails, or if `path` is a folder, a device, or a link to one.
    """
    _check_file(path)
    with private_folder(path) as folder:
        part = folder / path.name
        write(part)
        part.chmod(_mode(path))
        sync(part)
        _check_file(path)
        os.replace(part, path)
        sync(path.parent)


def write_text_whole(path: Path, text: str) -> None:
    """Write a text in UTF-8 as `write_whole` does."""

    def write(part: Path) -> None:
        part.write_text(text, encoding="utf-8")

    write_whole(path, write)


def _check_file(path: Path) -> None:
    whole_path(path)
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(f"{path} is no regular file; choose another place")


def _mode(path: Path) -> int:
    """Permissions of the file that is replaced, or the default."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(path.stat().st_mode)
    os.umask(mask := os.umask(0o077))
    return 0o666 & ~mask


def sync(path: Path) -> None:
    """Sync a file, or a folder's names, to storage."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def private_folder(target: Path, clean: Clean = shutil.rmtree) -> Iterator[Path]:
    """Make a private folder beside `target`, removed afterwards.

    `clean` removes such a folder: this one, and those of killed writers.
    """
    target = target.absolute()
    stem = f".making-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}-"
    for left in sorted(target.parent.glob(f"{stem}*")):
        _remove_unlocked(left, clean)
    folder, handle = _locked_folder(target.parent, stem)
    try:
        yield folder
    finally:
        with suppress(FileNotFoundError):
            clean(folder)
        os.close(handle)


def _locked_folder(parent: Path, stem: str) -> tuple[Path, int]:
    """Make a folder and lock it; another writer's cleanup may remove it before it is locked."""
    while True:
        folder = parent / f"{stem}{token_hex(8)}"
        folder.mkdir(mode=0o700)
        with suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.exists():
                return folder, handle
            os.close(handle)


def _remove_unlocked(folder: Path, clean: Clean) -> None:
    """Remove a killed writer's folder; a live writer holds its lock."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # another writer's, or removed already
        return
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            clean(folder)
    finally:
        os.close(handle)


def place_once(folder: Path, make: Write) -> Path:
    """Return `folder`, made by `make` if it was not there.

    Concurrent callers wait. `make` fills a folder beside it that is then renamed, so that a kill
    leaves nothing half-written under this name.
    """
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f"{folder.name}.lock")):
        if not folder.exists():
            with private_folder(folder) as place:
                made = place / folder.name
                made.mkdir()
                make(made)
                made.rename(folder)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a separate lock file; the system releases the lock however the process ends.

    A replaced file cannot be its own lock: who opened the old one would lock nothing.
    """
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
