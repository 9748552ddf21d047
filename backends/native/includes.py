"""Transitive includes of a C file."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)


class Includes:
    """Follows includes within given folders; other headers are the compiler's or the system's.

    Conditions are not evaluated: every include counts.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(folders)
        self._found: dict[Path, tuple[Path, ...]] = {}
        self._contents: dict[Path, bytes] = {}

    def headers(self, source: Path) -> list[Path]:
        """Return all headers that a file reaches, by path."""
        reached: set[Path] = set()
        left = [source]
        while left:
            new = set(self._named_in(left.pop())) - reached
            reached |= new
            left += new
        return sorted(reached)

    def digest(self, source: Path) -> str:
        """Return a digest of the names and contents of those headers."""
        digest = hashlib.sha256()
        for path in self.headers(source):
            digest.update(path.name.encode() + b"\0" + self._content(path))
        return digest.hexdigest()

    def _named_in(self, path: Path) -> tuple[Path, ...]:
        if path not in self._found:
            names = {
                name.decode(errors="replace") for name in _INCLUDE.findall(self._content(path))
            }
            places = [folder / name for name in names for folder in (path.parent, *self.folders)]
            self._found[path] = tuple(place.resolve() for place in places if place.is_file())
        return self._found[path]

    def _content(self, path: Path) -> bytes:
        """Read a file once: each header is reached from many sources."""
        if path not in self._contents:
            self._contents[path] = path.read_bytes()
        return self._contents[path]
