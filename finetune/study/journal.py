"""The study's memory: one JSON object a line, a key and what came of it. Nothing is done twice.

A line is written whole or not at all as far as readers are concerned: a torn last one, which a kill
may leave, is dropped when the journal is opened again.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pockengine.errors import FinetuneError

Entry = Mapping[str, Any]


def digest(text: str) -> str:
    """Return twelve hexadecimal digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Journal:
    """Entries by their key; both are plain JSON objects."""

    def __init__(self, path: Path) -> None:
        """Read what is there; FinetuneError names a line that is damaged."""
        self.path = path
        self._found: dict[str, tuple[Entry, Entry]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._read()

    def _read(self) -> None:
        text = self.path.read_text(encoding="utf-8")
        whole, _, torn = text.rpartition("\n")
        if torn:
            with self.path.open("r+b") as file:
                file.truncate(len(text.encode()) - len(torn.encode()))
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                entry = json.loads(line)
                key, result = entry["key"], entry["result"]
            except (ValueError, TypeError, KeyError) as error:
                raise FinetuneError(
                    f"{self.path}:{number} is no entry of the study; remove the line: {error}"
                ) from error
            self._found[_name(key)] = key, result

    def get(self, key: Entry) -> Entry | None:
        """Return what came of this key, or None."""
        found = self._found.get(_name(key))
        return None if found is None else found[1]

    def put(self, key: Entry, result: Entry) -> None:
        """Append an entry and have it on the disk."""
        line = json.dumps({"key": key, "result": result}, sort_keys=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._found[_name(key)] = key, result

    def entries(self, **wanted: object) -> Iterator[tuple[Entry, Entry]]:
        """Yield keys and results, in the order of their coming, whose key has these values."""
        for key, result in self._found.values():
            if all(key.get(name) == value for name, value in wanted.items()):
                yield key, result


def _name(key: Entry) -> str:
    return json.dumps(key, sort_keys=True)
