"""Folders that are made once by whichever process comes first, and are whole or not there."""

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def place_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return `folder`, made by `make` if it was not there.

    Others that want it wait. `make` fills a folder beside it that is then renamed, so that a kill
    leaves nothing half-written under this name.
    """
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock, locked(lock):
        if not folder.exists():
            making = folder.parent / f".making-{folder.name}"
            shutil.rmtree(making, ignore_errors=True)  # what a kill left: we hold the lock
            making.mkdir()
            make(making)
            making.rename(folder)
    return folder


@contextmanager
def locked(file: IO[str]) -> Iterator[None]:
    """Hold an open file for this process alone; the system lets go when the process ends."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
