"""The statements of all languages, read from a table that documents its format."""

import re
from collections.abc import Iterator
from pathlib import Path

TABLE = Path(__file__).with_name("statements.txt")
NAMESPACES = {
    "jax": {"np": "jnp", "nn": "jax.nn"},
    "keras": {"np": "ops", "nn": "ops"},
    "torch": {"np": "torch", "nn": "F"},
}


def statements(language: str) -> tuple[str, ...]:
    """Return the statements of a language, repeated by weight."""
    found: list[str] = []
    for heading, rows in _groups():
        count = re.search(rf" (?:{language[0]}=)?(\d+)", heading)
        own = [text for row in rows if language[0] in row[:3] for text in _filled(row[4:])]
        found += own * (int(count.group(1)) if count else 1)
    for name, words in NAMESPACES[language].items():
        found = [text.replace(f"{{{name}}}", words) for text in found]
    return tuple(found)


def _groups() -> Iterator[tuple[str, list[str]]]:
    """Yield each heading with its rows."""
    for group in TABLE.read_text(encoding="utf-8").split("\n[")[1:]:
        heading, *rows = group.splitlines()
        yield heading, [row for row in rows if row and not row.startswith("#")]


def _filled(row: str) -> list[str]:
    """Return a row's statement, or one for each of its alternatives."""
    text, _, words = row.replace("\\n", "\n").partition(" :: ")
    return [text.replace("{u}", word) for word in words.split()] or [text]
