"""A cache of compiled kernels: equal texts are built once per architecture and compiler.

An entry's name includes the digest of its bytes, so a damaged one is detected and rebuilt.
"""

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from pockengine.backends.cache import own_cache
from pockengine.errors import BuildError, reason_of

FOLDER = "gpu-code"


def cached_code(identity: Sequence[str], build: Callable[[], bytes]) -> bytes:
    """Return the code of a text, a compiler and its options, built if it is not cached."""
    key = hashlib.sha256("\0".join(identity).encode()).hexdigest()
    shelf = own_cache() / FOLDER / key[:2]
    for entry in shelf.glob(f"{key}-*"):
        data = entry.read_bytes()
        if entry.name == _name(key, data):
            return data
    code = build()
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=shelf) as folder:
            complete = Path(folder) / "code"
            complete.write_bytes(code)
            complete.replace(shelf / _name(key, code))
    except OSError as error:
        raise BuildError(f"cannot store compiled kernels in {shelf}: {reason_of(error)}") from error
    return code


def _name(key: str, data: bytes) -> str:
    return f"{key}-{hashlib.sha256(data).hexdigest()}"
