"""Write the tables and charts of figures into the pages, from the records in `docs/results`.

`python -m pockengine.tests.docs.figures` writes; a test compares.
"""

import math
from pathlib import Path
from statistics import fmean

from pockengine.tests.docs.bar_chart import Bar, bar_chart
from pockengine.tests.docs.figure_pages import BOARD, PAIRS, PEERS, TABLES
from pockengine.tests.docs.figure_table import ENGINES, SCHEMES
from pockengine.tests.docs.marks import PART, render, write
from pockengine.tests.docs.records import ROOT

HEAD_ALONE = "ResNet-8"
"""The pair whose search found the head alone; its ratio of memory is no typical one."""


def files() -> dict[Path, str]:
    """Return the generated files: pages with their tables, and charts."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    charts = {"speed.svg": speed_chart(), "board.svg": board_chart()}
    return {
        **{page: render(text, _part) for page, text in texts.items() if PART.search(text)},
        **{ROOT / "docs" / "images" / name: text for name, text in charts.items()},
    }


def _part(name: str) -> str:
    return summary() if name == "summary" else f"\n{TABLES[name].text()}\n"


def summary() -> str:
    """Return the headline figures, one sentence each."""
    ratios = [ratio for _, ratio in _speedups()]
    gains, memory = _pairs()
    board = {
        (one.record.scheme, one.record.engine): one.record.value
        for one in BOARD.figures()
        if one.record.metric == "guest_instructions"
    }
    full, tensorflow = board["full", "pockengine"], board["full", "tf-graph"]
    sparse = board["sparse-by-hand", "pockengine"]
    return (
        f"\n- A full training step on two x86 cores: {min(ratios):.1f} to {max(ratios):.1f} times "
        f"faster than the fastest of eight engines of other frameworks.\n"
        f"- On an emulated Raspberry Pi 4: {tensorflow / full:.1f} times fewer instructions than "
        f"TensorFlow's graph; with a sparse scheme {tensorflow / sparse:.1f} times fewer.\n"
        f"- Searched sparse schemes: {fmean(gains):+.1f} points of test accuracy beside full "
        f"training, mean of {len(gains)} pairs of model and data (least {min(gains):+.1f}), with "
        f"{memory:.1f} times less memory beyond inference.\n\n"
    )


def _speedups() -> list[tuple[str, float]]:
    found = []
    for (model, batch), cells in PEERS.body():
        ours, other = cells["PockEngine, ms"], cells["fastest other, ms"]
        assert ours is not None, model
        assert other is not None, model
        found.append((f"{model}, batch {batch}", other.record.value / ours.record.value))
    return found


def _pairs() -> tuple[list[float], float]:
    """Return points of accuracy that schemes gain over full, and the mean ratio of memory."""
    gains, ratios = [], []
    for (model, _), cells in PAIRS.body():
        one = {title: cell.record.value for title, cell in cells.items() if cell is not None}
        gains.append(100 * (one["searched, %"] - one["full, %"]))
        if model != HEAD_ALONE:
            ratios.append(one["memory of full"] / one["memory of searched"])
    return gains, math.exp(fmean(map(math.log, ratios)))


def speed_chart() -> str:
    """Return the bars of how many times faster a full step is than the fastest other engine."""
    bars = [Bar(name, ratio, f"{ratio:.1f}x") for name, ratio in _speedups()]
    return bar_chart(
        "A full training step: times faster than the fastest other framework",
        "Two threads of an AMD Zen 4. Dashed: the fastest of PyTorch, TensorFlow, JAX, "
        "ONNX Runtime and MNN.",
        bars,
        line=1.0,
    )


def board_chart() -> str:
    """Return the bars of the instructions of a step on the emulated Raspberry Pi 4."""
    steps = [one.record for one in BOARD.figures() if one.record.metric == "guest_instructions"]
    bars = [
        Bar(
            f"{ENGINES[step.engine]}, {SCHEMES.get(step.scheme, step.scheme)}",
            step.value,
            f"{step.value / 1e6:.1f} M",
            step.engine == "pockengine",
        )
        for step in sorted(steps, key=lambda step: step.value)
    ]
    return bar_chart(
        "Instructions of a training step on an emulated Raspberry Pi 4",
        "MobileNetV2 (width 0.35, 96x96), batch 4, one thread. Instructions are not cycles.",
        bars,
    )


if __name__ == "__main__":
    for path, text in files().items():
        write(path, text)
