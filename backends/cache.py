"""The cache of built code, so that equal code is built once."""

import os
from pathlib import Path

from pockengine.errors import BuildError, reason_of
from pockengine.folders import cache_folder


def own_cache() -> Path:
    """Make the cache, readable by its user only; BuildError if it belongs to another user."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)  # fails if it still does not exist
        state = folder.stat()
    except OSError as error:
        raise BuildError(f"cannot keep objects in {folder}: {reason_of(error)}") from error
    if state.st_uid != os.geteuid():
        raise BuildError(
            f"the cache {folder} belongs to another user, who could put code into programs; set "
            "XDG_CACHE_HOME to a folder of your own"
        )
    return folder
