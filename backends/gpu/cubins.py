"""A cache of cubins: equal kernels are built once per architecture and compiler.

An entry's name includes the digest of its bytes, so a damaged one is detected and rebuilt.
"""

import hashlib
import tempfile
from pathlib import Path

from pockengine.backends.cache import own_cache
from pockengine.backends.gpu.nvrtc import OPTIONS, build_cubin, compiler_version
from pockengine.errors import BuildError

FOLDER = "cubins"


def cached_cubin(text: str, architecture: str) -> bytes:
    """Return the cubin of a text for an architecture, cached if possible."""
    identity = [architecture, str(compiler_version()), *OPTIONS, text]
    key = hashlib.sha256("\0".join(identity).encode()).hexdigest()
    shelf = own_cache() / FOLDER / key[:2]
    for entry in shelf.glob(f"{key}-*.cubin"):
        data = entry.read_bytes()
        if entry.name == _name(key, data):
            return data
    code = build_cubin(text, architecture).code
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=shelf) as folder:
            made = Path(folder) / "made"
            made.write_bytes(code)
            made.replace(shelf / _name(key, code))
    except OSError as error:
        raise BuildError(f"cannot keep cubins in {shelf}: {error}") from error
    return code


def _name(key: str, data: bytes) -> str:
    return f"{key}-{hashlib.sha256(data).hexdigest()}.cubin"
