"""Where the farm keeps files on this machine: the XDG folders, under the project's name.

The cache may be deleted at any time and is rebuilt; the data folder holds what was measured.
"""

import os
import tempfile
from pathlib import Path

NAME = "pockengine"


def cache_folder() -> Path:
    """Return the folder for what can be made again: packages, images, keys of emulated boards."""
    return _folder("XDG_CACHE_HOME", ".cache")


def data_folder() -> Path:
    """Return the folder for what cannot: the measured results."""
    return _folder("XDG_DATA_HOME", ".local/share")


def config_folder() -> Path:
    """Return the folder where a user describes boards of their own."""
    return _folder("XDG_CONFIG_HOME", ".config")


def _folder(variable: str, under_home: str) -> Path:
    """Return the XDG folder; without a home (a test sandbox) it lies in the temporary folder."""
    value = os.environ.get(variable, "")
    if os.path.isabs(value):  # the XDG specification says to ignore relative ones
        return Path(value) / NAME
    home = os.environ.get("HOME") or tempfile.gettempdir()
    return Path(home) / under_home / NAME
