"""Where files are kept on this machine: the XDG folders, under the project's name.

The cache may be deleted at any time and is rebuilt; the data folder holds what was measured. Both
are readable by their user alone.
"""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from pockengine.errors import PockEngineError

NAME = "pockengine"


def cache_folder() -> Path:
    """Return the folder for what can be made again: objects, packages, images of boards."""
    return _closed(_folder("XDG_CACHE_HOME", ".cache"))


def data_folder() -> Path:
    """Return the folder for what cannot: the measured results."""
    return _closed(_folder("XDG_DATA_HOME", ".local/share"))


def config_folder() -> Path:
    """Return the folder where a user describes boards of their own."""
    return _folder("XDG_CONFIG_HOME", ".config")


def _folder(variable: str, under_home: str) -> Path:
    """Return the XDG folder; without a home (a test sandbox) it lies in one of this user's own."""
    value = os.environ.get(variable, "")
    if os.path.isabs(value):  # the XDG specification says to ignore relative ones
        return Path(value) / NAME
    home = os.environ.get("HOME")
    return (Path(home) if home else _home_in_temporary_folder()) / under_home / NAME


def _closed(folder: Path) -> Path:
    """Make a folder that is closed to other users; one that cannot be made is told by its use."""
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid == os.geteuid() and status.st_mode & 0o077:
            folder.chmod(0o700)
    return folder


def _home_in_temporary_folder() -> Path:
    """Make a folder that nobody else can have put there: keys of emulated boards go into it."""
    home = Path(tempfile.gettempdir()) / f"{NAME}-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    status = home.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PockEngineError(f"{home} is not this user's alone; set HOME or XDG_CACHE_HOME")
    return home
