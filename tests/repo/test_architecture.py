"""ARCHITECTURE.md shows the compiler's current output, and its names exist."""

import re

from pockengine.tests.repo.tiny_net import DOCUMENT, split, through_passes
from pockengine.tests.repo.tree import ROOT, files, read


def test_the_dumps_equal_the_passes_output() -> None:
    _, shown, _ = split(DOCUMENT.read_text(encoding="utf-8"))
    assert shown == through_passes(), "run python -m pockengine.tests.repo.tiny_net"


def test_the_functions_in_the_table_exist() -> None:
    rows = re.findall(r"`([\w/]+\.py):(\w+)`", DOCUMENT.read_text(encoding="utf-8"))
    assert len(rows) >= 10
    for path, name in rows:
        assert re.search(rf"^\s*(def|class) {name}\b", read(ROOT / path), re.MULTILINE), (
            path,
            name,
        )


def test_every_named_file_exists() -> None:
    text, _, _ = split(DOCUMENT.read_text(encoding="utf-8"))
    tree = {f"/{path}" for path in files("*.py", "*.toml")}
    named = set(re.findall(r"`([\w/]+\.(?:py|toml))[`:]", text))
    assert len(named) >= 40
    assert not [name for name in named if not any(path.endswith(f"/{name}") for path in tree)]
