"""The charts of the results page, one per question, from the tables' records."""

from pockengine.tests.docs.bar_chart import Bar, bar_chart
from pockengine.tests.docs.figure_pages import BOARD, INT8, LANGUAGE, PAIRS, PEERS
from pockengine.tests.docs.figure_table import ENGINES, MODELS, SCHEMES, Table
from pockengine.tests.docs.line_chart import Axis, Line, line_chart
from pockengine.tests.docs.records import RESULTS, read_figures

OURS = "pockengine"


def charts() -> dict[str, str]:
    """Return the charts by their file names."""
    return {
        "speed.svg": _speed(),
        "memory.svg": _memory(),
        "board.svg": _board(),
        "int8.svg": _int8(),
        "schemes.svg": _schemes(),
        "language.svg": _language(),
        "budgets.svg": _budgets(),
    }


def ratios(table: Table, over: str, under: str) -> list[tuple[tuple[str, ...], float]]:
    """Return each row's names and the ratio of two columns; every row must have both."""
    found = []
    for names, cells in table.body():
        first, second = cells[over], cells[under]
        assert first is not None, names
        assert second is not None, names
        found.append((names, first.record.value / second.record.value))
    return found


def _speed() -> str:
    rows = ratios(PEERS, "fastest other, ms", "PockEngine, ms")
    cpus = "; ".join(dict.fromkeys(one.cpu for one in PEERS.figures()))
    return bar_chart(
        "A full training step: times faster than the fastest other framework",
        f"{cpus}. Dashed: the fastest of PyTorch, TensorFlow, JAX, ONNX Runtime and MNN.",
        [_times(f"{model}, batch {batch}", ratio) for (model, batch), ratio in rows],
        line=1.0,
    )


def _memory() -> str:
    rows = ratios(PEERS, "leanest other, MiB", "PockEngine, MiB")
    return bar_chart(
        "A full training step: times less memory than the leanest other framework",
        "Peak resident memory of the process. Dashed: the leanest of the same engines.",
        [_times(f"{model}, batch {batch}", ratio) for (model, batch), ratio in rows],
        line=1.0,
    )


def _budgets() -> str:
    """The work of a step against its arena, both relative to those without a memory budget."""
    figures = read_figures(RESULTS / "budgets.jsonl")
    lines = []
    for model, batch in dict.fromkeys((one.record.model, one.record.batch) for one in figures):
        mine = [
            one.record for one in figures if (one.record.model, one.record.batch) == (model, batch)
        ]
        arenas = [record.value for record in mine if record.metric == "arena_bytes"]
        works = [record.value for record in mine if record.metric == "multiply_adds"]
        points = [
            (arena / arenas[0], work / works[0]) for arena, work in zip(arenas, works, strict=True)
        ]
        lines.append(Line(f"{MODELS.get(model, model)}, batch {batch}", points[::-1]))
    (planned,) = dict.fromkeys(one.cpu for one in figures)
    across = Axis("Across: arena of a step", [0.0, 0.2, 0.4, 0.6, 0.8, 1.0], "{:.0%}")
    up = Axis("up: multiply-adds of a step", [1.0, 1.1, 1.2, 1.3], "{:.1f}x")
    return line_chart(
        "What a memory budget costs: full training, relative to no budget",
        f"{planned}; a point is one budget, left ends are the smallest arenas",
        (across, up),
        lines,
    )


def _board() -> str:
    steps = [one.record for one in BOARD.figures() if one.record.metric == "guest_instructions"]
    bars = [
        _millions(
            f"{ENGINES[step.engine]}, {SCHEMES.get(step.scheme, step.scheme)}",
            step.value,
            ours=step.engine == OURS,
        )
        for step in sorted(steps, key=lambda step: step.value)
    ]
    return bar_chart(
        "Instructions of a training step on an emulated Raspberry Pi 4",
        "MobileNetV2 (width 0.35, 96x96), batch 4, one thread. Instructions are not cycles.",
        bars,
    )


def _int8() -> str:
    bars = []
    for (device, scheme, _), cells in INT8.body():
        for title, ours in (("step, int8", True), ("step, f32", False)):
            if (cell := cells[title]) is not None:
                name = f"{device}, {scheme}, {title.removeprefix('step, ')}"
                bars.append(_millions(name, cell.record.value, ours=ours))
    return bar_chart(
        "Instructions of a training step in int8 and in f32, PockEngine",
        "MobileNetV2-0.35-96, batch 4, emulated. The Snapdragon DSP counts packets.",
        bars,
    )


def _schemes() -> str:
    bars = []
    for (model, data), cells in PAIRS.body():
        for title, ours in (("searched, %", True), ("full, %", False)):
            if (cell := cells[title]) is not None:
                value = 100 * cell.record.value
                name = f"{model}, {data}, {title.removesuffix(', %')}"
                bars.append(Bar(name, value, f"{value:.1f}", ours))
    return bar_chart(
        "Test accuracy of searched sparse schemes and full training, %",
        "Mean of five seeds, Adam, rates tuned for each scheme.",
        bars,
    )


def _language() -> str:
    speed = ratios(LANGUAGE, "PyTorch or PEFT, ms", "PockEngine, ms")
    memory = ratios(LANGUAGE, "PyTorch or PEFT, MiB", "PockEngine, MiB")
    bars = []
    for ((model, scheme, cpu), faster), (_, less) in zip(speed, memory, strict=True):
        bars.append(_times(f"{model}, {scheme}, {cpu}, speed", faster))
        bars.append(Bar(f"{model}, {scheme}, {cpu}, memory", less, f"{less:.2f}x", ours=False))
    return bar_chart(
        "Fine-tuning a decoder: times faster, and times less memory, than PyTorch or PEFT",
        "512 tokens, batch 1, AdamW, f32, two threads. Dashed: PyTorch or PEFT.",
        bars,
        line=1.0,
    )


def _times(name: str, ratio: float) -> Bar:
    return Bar(name, ratio, f"{ratio:.2f}x" if ratio < 2 else f"{ratio:.1f}x")


def _millions(name: str, value: float, *, ours: bool) -> Bar:
    return Bar(name, value, f"{value / 1e6:.1f} M", ours)
