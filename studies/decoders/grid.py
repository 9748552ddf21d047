"""Contributions as a grid: blocks as rows, matrices as columns."""

import re
from collections.abc import Mapping

from rich.box import SIMPLE
from rich.table import Table

from pockengine.finetune.contributions import Contributions

_NAME = re.compile(r"(?:.*\.)?(\d+)\.(?:.*\.)?([a-z0-9_]+)\.weight")


def cells_of(contributions: Contributions) -> Mapping[int, Mapping[str, float]]:
    """Return gains in hundredths by block and matrix; those of the last K norms at their first."""
    blocks: dict[int, dict[str, float]] = {}
    sets = []
    for item, gain in contributions.gains.items():
        if item.kind == "biases":
            sets.append((int(item.name.split()[1]), 100 * gain.mean))
        elif match := _NAME.fullmatch(item.name):
            blocks.setdefault(int(match[1]), {})[match[2].removesuffix("_proj")] = 100 * gain.mean
    for count, gained in sets:
        blocks.setdefault(max(blocks, default=0) + 1 - count, {})["norms from here"] = gained
    return dict(sorted(blocks.items()))


def grid(title: str, contributions: Contributions) -> Table:
    """Return the grid as a table."""
    cells = cells_of(contributions)
    names = [*_ORDER, *sorted({name for row in cells.values() for name in row} - {*_ORDER})]
    table = Table(title=title, box=SIMPLE)
    table.add_column("block")
    for name in names:
        table.add_column(name, justify="right")
    for block, row in cells.items():
        table.add_row(str(block), *(f"{row[name]:+.1f}" if name in row else "" for name in names))
    return table


_ORDER = ("q", "k", "v", "o", "gate", "up", "down")
"""Order of LLaMA's matrices in the forward pass."""
