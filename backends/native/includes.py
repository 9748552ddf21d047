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
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()

    def _named_in(self, path: Path) -> tuple[Path, ...]:
        if path not in self._found:
            names = {name.decode(errors="replace") for name in _INCLUDE.findall(path.read_bytes())}
            places = [
                (folder / name).resolve()
                for name in names
                for folder in (path.parent, *self.folders)
            ]
            self._found[path] = tuple(place for place in places if place.is_file())
        return self._found[path]
