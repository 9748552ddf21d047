"""Folders for files of this machine: the XDG folders, under the project's name.

The cache may be deleted at any time and is rebuilt; the data folder holds measured results. Both
are readable by their user only.
"""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from pockengine.errors import PockEngineError

NAME = "pockengine"


def cache_folder() -> Path:
    """Return the cache folder: objects, packages, board images."""
    return _closed(_folder("XDG_CACHE_HOME", ".cache"))


def data_folder() -> Path:
    """Return the data folder: measured results, which cannot be rebuilt."""
    return _closed(_folder("XDG_DATA_HOME", ".local/share"))


def config_folder() -> Path:
    """Return the folder of the user's own board descriptions."""
    return _folder("XDG_CONFIG_HOME", ".config")


def _folder(variable: str, under_home: str) -> Path:
    """Return the XDG folder; without a home (a test sandbox), a private temporary one."""
    value = os.environ.get(variable, "")
    if os.path.isabs(value):  # the XDG specification says to ignore relative ones
        return Path(value) / NAME
    home = os.environ.get("HOME")
    return (Path(home) if home else _home_in_temporary_folder()) / under_home / NAME


def _closed(folder: Path) -> Path:
    """Make a folder that is closed to other users; failure is reported when the folder is used."""
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid == os.geteuid() and status.st_mode & 0o077:
            folder.chmod(0o700)
    return folder


def _home_in_temporary_folder() -> Path:
    """Make a folder that no other user can have made: keys of emulated boards go into it."""
    home = Path(tempfile.gettempdir()) / f"{NAME}-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    status = home.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PockEngineError(f"{home} is not this user's alone; set HOME or XDG_CACHE_HOME")
    return home
