"""Write the tables and charts of figures into the pages, from the records in `docs/results`.

`python -m pockengine.tests.docs.figures` writes them; a test checks that they are current.
"""

import math
from pathlib import Path
from statistics import fmean

from pockengine.tests.docs.charts import charts, ratios
from pockengine.tests.docs.figure_pages import BOARD, PAIRS, PEERS, PEERS_INTEL, TABLES
from pockengine.tests.docs.marks import PART, render, write
from pockengine.tests.docs.records import ROOT

HEAD_ALONE = "ResNet-8"
"""The pair whose search chose only the head; its memory ratio is not typical."""


def files() -> dict[Path, str]:
    """Return the generated files: pages with their tables, and charts."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    return {
        **{page: render(text, _part) for page, text in texts.items() if PART.search(text)},
        **{ROOT / "docs" / "images" / name: text for name, text in charts().items()},
    }


def _part(name: str) -> str:
    return summary() if name == "summary" else f"\n{TABLES[name].text()}\n"


def summary() -> str:
    """Return the headline figures, one sentence each."""
    faster = [
        ratio
        for table in (PEERS, PEERS_INTEL)
        for _, ratio in ratios(table, "fastest other, ms", "PockEngine, ms")
    ]
    others = {one.record.engine for one in PEERS.figures()} - {"pockengine"}
    gains, memory = _pairs()
    board = {
        (one.record.scheme, one.record.engine): one.record.value
        for one in BOARD.figures()
        if one.record.metric == "guest_instructions"
    }
    full, tensorflow = board["full", "pockengine"], board["full", "tf-graph"]
    sparse = board["sparse-by-hand", "pockengine"]
    return (
        f"\n- A full training step on two x86 cores: {min(faster):.1f} to {max(faster):.1f} times "
        f"faster than the fastest of {len(others)} engines of other frameworks.\n"
        f"- On an emulated Raspberry Pi 4: {tensorflow / full:.1f} times fewer instructions than "
        f"TensorFlow's graph; with a sparse scheme {tensorflow / sparse:.1f} times fewer.\n"
        f"- Searched sparse schemes: {fmean(gains):+.1f} points of test accuracy over full "
        f"training, mean of {len(gains)} pairs of model and data (least {min(gains):+.1f}), with "
        f"{memory:.1f} times less memory beyond inference.\n\n"
    )


def _pairs() -> tuple[list[float], float]:
    """Return the schemes' accuracy gains over full, in points, and the mean memory ratio."""
    gains, less = [], []
    for (model, _), cells in PAIRS.body():
        one = {title: cell.record.value for title, cell in cells.items() if cell is not None}
        gains.append(100 * (one["searched, %"] - one["full, %"]))
        if model != HEAD_ALONE:
            less.append(one["memory of full"] / one["memory of searched"])
    return gains, math.exp(fmean(map(math.log, less)))


if __name__ == "__main__":
    for path, text in files().items():
        write(path, text)
