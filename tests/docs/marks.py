"""Generated parts of pages, between a mark that names the part and an end mark."""

import re
from collections.abc import Callable
from pathlib import Path

PART = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.S)


def render(page: str, make: Callable[[str], str]) -> str:
    """Return the page with each part regenerated; `make` returns a part by name."""
    return PART.sub(lambda part: f"{part[1]}{make(part['name'])}{part[3]}", page)


def write(path: Path, text: str) -> None:
    """Write a generated file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def stale(files: dict[Path, str]) -> list[str]:
    """Return the files whose content is out of date."""
    return [
        str(path)
        for path, text in files.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
