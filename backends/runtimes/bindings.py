"""Metadata of an artifact's models for sessions, as a JSON file.

It has the layout of each written param, layouts and offsets of each frozen one, and the valid
ranges of index inputs.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pockengine.backends.runtimes.layout import Layout
from pockengine.compiler.index_ranges import IndexRange
from pockengine.errors import ArtifactError, reason_of

BINDINGS = "bindings.json"


@dataclass(frozen=True)
class Frozen:
    """One form of a frozen param: its layout, and its offset in the constants' file."""

    layout: Layout
    offset: int


@dataclass(frozen=True)
class Bindings:
    """Layouts of params in the models, and the ranges of each entry's inputs."""

    written: Mapping[str, Layout]
    frozen: Mapping[str, tuple[Frozen, ...]]
    ranges: Mapping[str, tuple[IndexRange, ...]]


def write_bindings(bindings: Bindings, folder: Path) -> None:
    """Write the file."""
    text = json.dumps(asdict(bindings), indent=1) + "\n"
    (folder / BINDINGS).write_text(text, encoding="utf-8")


def read_bindings(folder: Path) -> Bindings:
    """Read the file, whose hash was checked; ArtifactError if it is malformed."""
    try:
        table: dict[str, Any] = json.loads((folder / BINDINGS).read_text(encoding="utf-8"))
        return Bindings(
            {name: tuple(layout) for name, layout in table["written"].items()},
            {name: tuple(map(_frozen, rows)) for name, rows in table["frozen"].items()},
            {
                entry: tuple(IndexRange(**row) for row in rows)
                for entry, rows in table["ranges"].items()
            },
        )
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise ArtifactError(
            f"{folder / BINDINGS} cannot be read: {reason_of(error)}; compile the model again"
        ) from error


def _frozen(row: Mapping[str, Any]) -> Frozen:
    return Frozen(tuple(row["layout"]), int(row["offset"]))
