"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [" | ".join(head), " | ".join("---" for _ in head), *map(" | ".join, rows)]
    return "".join(f"| {line} |\n" for line in lines)
