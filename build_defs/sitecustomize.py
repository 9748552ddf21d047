"""How Python runs in tests and in the programs that they start: cached bytecode, nothing synced.

Python imports `sitecustomize` as it starts. It stores bytecode beside the source, but Bazel runs
each test in a new, read-only folder of links, so each process would compile every module that it
imports: half a second for 300. Syncing makes writing a file, and deleting it, ten times slower, and
no test needs it. Graphs have many objects and few cycles, so Python's default of a full garbage
collection every 70,000 objects takes a fifth of a compilation.
"""

import gc
import os
import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from importlib.util import source_from_cache, source_hash
from typing import Any

PACKAGE = "pockengine"
BYTECODE = ".pyc"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder that the package is imported from."""


class CachedLoader(SourceFileLoader):
    """Loads bytecode that is named by the hash of its source, whichever folder that is in."""

    def path_stats(self, path: str) -> dict[str, int]:
        """Return the size alone: bytecode of another source has another name."""
        return {"mtime": 0, "size": os.stat(path).st_size}

    def get_data(self, path: str) -> bytes:
        """Read a source, or its bytecode from the cache."""
        return super().get_data(_cached(path) if path.endswith(BYTECODE) else path)

    def set_data(self, path: str, data: Any, *, _mode: int = 0o600) -> None:
        """Write bytecode to the cache."""
        super().set_data(_cached(path), data, _mode=0o600)


def _cached(bytecode: str) -> str:
    """Return the place in the cache of bytecode that Python looks for at this path."""
    with open(source_from_cache(bytecode), "rb") as file:
        name = source_hash(file.read()).hex()
    tag = f"{sys.implementation.cache_tag}-{sys.flags.optimize}"
    return os.path.join(CACHE, PACKAGE, "bytecode", tag, name[:2], name + BYTECODE)


def _finder(folder: str) -> FileFinder:
    """Return the finder of modules in a folder of this repository."""
    within = folder == ROOT or f"{folder}/".startswith(f"{ROOT}/{PACKAGE}/")
    if not within or not os.path.isdir(folder):  # Python asks for a script as well
        raise ImportError(f"{folder} is no folder of {PACKAGE}")
    return FileFinder(folder, (CachedLoader, SOURCE_SUFFIXES))


CACHE = os.environ.get("XDG_CACHE_HOME", "")
if os.environ.get("TEST_SRCDIR"):
    sys.path[:] = map(os.path.normpath, sys.path)  # ROOT may be there as ROOT/.
    os.fsync = lambda fd: None
    gc.set_threshold(50_000, 10, 10)
    if os.path.isabs(CACHE):
        sys.path_hooks.insert(0, _finder)
        sys.path_importer_cache.pop(ROOT, None)
