"""The study's journal: one JSON object per line, a key and its result, so no trial runs twice.

New entries are appended to a plain file. A torn last line, as left by a kill, is dropped when the
journal is opened again. `pack` moves all entries into a compressed file, which is the one in the
repository: 0.1 MB instead of 5.9.
"""

import hashlib
import json
import lzma
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pockengine.errors import FinetuneError
from pockengine.files import write_whole

Entry = Mapping[str, Any]


def digest(text: str) -> str:
    """Return twelve hexadecimal digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Journal:
    """Entries by their key; both are plain JSON objects."""

    def __init__(self, path: Path) -> None:
        """Read `path` and its packed entries, if any; FinetuneError names damaged data."""
        self.path = path
        self.packed = path.with_name(f"{path.name}.xz")
        self._entries: dict[str, tuple[Entry, Entry]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.packed.exists():
            self._add(self.packed, self._unpack())
        if path.exists():
            self._add(path, self._whole_lines())

    def _unpack(self) -> str:
        try:
            return lzma.decompress(self.packed.read_bytes()).decode()
        except (lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
            raise FinetuneError(
                f"{self.packed} is no packed journal: {error}; restore the file"
            ) from error

    def _whole_lines(self) -> str:
        text = self.path.read_text(encoding="utf-8")
        whole, _, torn = text.rpartition("\n")
        if torn:
            with self.path.open("r+b") as file:
                file.truncate(len(text.encode()) - len(torn.encode()))
        return whole

    def _add(self, path: Path, text: str) -> None:
        for number, line in enumerate(text.splitlines(), 1):
            try:
                entry = json.loads(line)
                key, result = entry["key"], entry["result"]
            except (ValueError, TypeError, KeyError) as error:
                raise FinetuneError(
                    f"{path}:{number} is no entry of the study; remove the line: {error}"
                ) from error
            self._entries[_name(key)] = key, result

    def get(self, key: Entry) -> Entry | None:
        """Return the result of this key, or None."""
        entry = self._entries.get(_name(key))
        return None if entry is None else entry[1]

    def put(self, key: Entry, result: Entry) -> None:
        """Append an entry; it is on disk on return."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(key, result))
            file.flush()
            os.fsync(file.fileno())
        self._entries[_name(key)] = key, result

    def pack(self) -> None:
        """Write all entries to the packed file; then remove the plain file.

        A kill in between leaves entries in both, which are read once.
        """
        if not self.path.exists():
            return
        lines = "".join(_line(key, result) for key, result in self._entries.values())
        packed = lzma.compress(lines.encode(), preset=9 | lzma.PRESET_EXTREME)

        def write(part: Path) -> None:
            part.write_bytes(packed)

        write_whole(self.packed, write)
        self.path.unlink()

    def entries(self, **filters: object) -> Iterator[tuple[Entry, Entry]]:
        """Yield keys and results of entries whose key has these values, in order of addition."""
        for key, result in self._entries.values():
            if all(key.get(name) == value for name, value in filters.items()):
                yield key, result


def _line(key: Entry, result: Entry) -> str:
    return json.dumps({"key": key, "result": result}, sort_keys=True) + "\n"


def _name(key: Entry) -> str:
    return json.dumps(key, sort_keys=True)
