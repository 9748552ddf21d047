"""The paper's tables that other commands measure, from their records.

Memory, a microcontroller, a DSP, accuracy, LLaMA2-7B.

Sources of the public figures: figures/mem_comparison.png of mit-han-lab/tiny-training; slides of
MIT 6.5940, lecture 21, whose table of LLaMA2-7B is among the records of docs/results.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from pockengine.farm.bench.paper.cells import OURS
from pockengine.farm.bench.paper.rows import FIGURES, figures_of
from pockengine.farm.bench.paper.table import NOTHING, ratio_text
from pockengine.farm.cycles.modelled import what_it_means
from pockengine.farm.results.results import Record

LADDER_MODELS = (
    *("mobilenet_v2-0.35-128", "mbv2-w0.35"),
    *("mobilenet_v2-0.35-96", "mobilenet_v2-0.35-64"),
)
"""Nets of the ladder, the closest to the paper's first."""
ACCURACY_SCHEMES = ("full", "bias-only", "sparse", "searched")
LLAMA = "llama2-7b"
METHODS = ("full", "lora-8", "sparse")
PAPER, PYTORCH = "paper", "torch"
MICROCONTROLLER, DSP = "stm32f746", "snapdragon-dsp"
DSP_METRICS = {"guest_instructions": "step", "predict_guest_instructions": "prediction"}


@dataclass(frozen=True)
class JoinedTable:
    """A table as text, whose first column names the row."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str


def joined_tables(records: Sequence[Record]) -> list[JoinedTable]:
    """Return the tables that the records measure any row of."""
    passed = [record for record in records if record.ok]
    makers = (_memory, _microcontroller, _dsp, _accuracy, _llama)
    return [table for make in makers if (table := make(passed)) is not None]


def joined_table(joined: JoinedTable) -> Table:
    """Lay a table out for the terminal."""
    table = Table(title=joined.title, caption=joined.caption)
    table.add_column(joined.headings[0])
    for heading in joined.headings[1:]:
        table.add_column(heading, justify="right")
    for row in joined.rows:
        table.add_row(*row)
    return table


def _memory(records: Sequence[Record]) -> JoinedTable | None:
    rungs = tomllib.loads(FIGURES.read_text(encoding="utf-8"))["memory"]
    found = [_measured(records, rung.get("records")) for rung in rungs]
    if not any(found):
        return None
    rows = [
        (rung["rung"], *_net(record, rung.get("reason", "not measured")), *_sizes(rung, record))
        for rung, record in zip(rungs, found, strict=True)
    ]
    return JoinedTable(
        "Memory: MobileNetV2, width 0.35",
        ("rung", "net", "batch", "MB", "paper MB", "paper over it"),
        tuple(rows),
        "A framework's is its process, ours the arena. The paper's are read off its figure, which "
        "names neither resolution nor batch.",
    )


def _measured(records: Sequence[Record], equal: Mapping[str, str] | None) -> Record | None:
    """Return the record of the smallest batch and closest net that has these values."""
    fitting = [
        record
        for record in records
        if equal
        and record.model in LADDER_MODELS
        and all(getattr(record, name) == value for name, value in equal.items())
    ]
    by_place = sorted(fitting, key=lambda x: (x.batch, LADDER_MODELS.index(x.model)))
    return by_place[0] if by_place else None


def _net(record: Record | None, reason: str) -> tuple[str, str]:
    return (reason, NOTHING) if record is None else (record.model, str(record.batch))


def _sizes(rung: Mapping[str, float], record: Record | None) -> tuple[str, str, str]:
    ours = None if record is None else record.value
    ratio = None if ours is None else rung["bytes"] / ours
    return _megabytes(ours), _megabytes(rung["bytes"]), ratio_text(ratio)


def _megabytes(size: float | None) -> str:
    return NOTHING if size is None else f"{size / 1e6:,.3g}"


def _microcontroller(records: Sequence[Record]) -> JoinedTable | None:
    """Return int8 steps on the STM32F746: ours, TinyEngine's, and the paper's milliseconds."""
    steps = [x for x in records if x.device == MICROCONTROLLER and x.dtype == "int8"]
    kinds = dict.fromkeys(
        (x.model, x.scheme, x.engine) for x in steps if x.metric == "guest_instructions"
    )
    if not kinds:
        return None
    public = figures_of(MICROCONTROLLER)
    rows = []
    for kind in kinds:
        values = {x.metric: x.value for x in steps if (x.model, x.scheme, x.engine) == kind}
        kilobytes = (values.get(name) for name in ("ram_bytes", "flash_bytes"))
        millions = f"{values['guest_instructions'] / 1e6:.1f}"
        ms = values.get("modelled_ms")
        modelled = NOTHING if ms is None else f"{ms:.0f}"
        sizes = (f"{x / 1e3:.0f}" if x else NOTHING for x in kilobytes)
        rows.append((*kind, millions, modelled, *sizes))
    times = ", ".join(f"{x.model} {x.ms:g} ms ({x.source})" for x in public.steps)
    over = f"; {public.speedups[0]} times TFLite" if public.speedups else ""
    return JoinedTable(
        "STM32F746, int8, batch 1",
        ("net", "scheme", "engine", "M instr.", "modelled ms", "RAM, KB", "flash, KB"),
        tuple(rows),
        f"A step. {what_it_means(MICROCONTROLLER)} The paper's sparse steps: {times}{over}.",
    )


def _dsp(records: Sequence[Record]) -> JoinedTable | None:
    """Return our steps and predictions on the Snapdragon's DSP, in f32 and in int8."""
    counts = {
        (x.model, x.batch, x.scheme, x.metric, x.dtype): x.value
        for x in records
        if x.device == DSP and x.metric in DSP_METRICS
    }
    rows = []
    for model, batch, scheme, metric in dict.fromkeys(key[:4] for key in counts):
        key = (model, batch, scheme, metric)
        f32, int8 = counts.get((*key, "f32")), counts.get((*key, "int8"))
        ratio = f32 / int8 if f32 and int8 else None
        millions = (NOTHING if x is None else f"{x / 1e6:.1f}" for x in (f32, int8))
        name = f"{model}, batch {batch}"
        rows.append((name, scheme, DSP_METRICS[metric], *millions, ratio_text(ratio)))
    if not rows:
        return None
    return JoinedTable(
        "Snapdragon DSP",
        ("net", "scheme", "program", "M packets, f32", "M packets, int8", "f32 over int8"),
        tuple(rows),
        "Packets of instructions of one thread, counted under emulation. No other engine trains "
        "there, and the paper's figures on this DSP are not public.",
    )


def _accuracy(records: Sequence[Record]) -> JoinedTable | None:
    """Return the accuracies of the sparse study: of a model and data set, by scheme."""
    accuracies = [
        x
        for x in records
        if x.metric == "accuracy"
        and x.engine == OURS
        and x.dtype == "f32"
        and x.scheme in ACCURACY_SCHEMES
    ]
    by_pair: dict[tuple[str, str], dict[str, Record]] = {}
    for record in accuracies:
        by_pair.setdefault((record.model, record.dataset or NOTHING), {})[record.scheme] = record
    rows = [
        (f"{model}, {dataset}", *(_mean(found.get(name)) for name in ACCURACY_SCHEMES))
        for (model, dataset), found in by_pair.items()
        if {"full", "sparse"} <= found.keys()
    ]
    if not rows:
        return None
    return JoinedTable(
        "Accuracy, %",
        ("model, data", *ACCURACY_SCHEMES),
        tuple(rows),
        "Means of seeds, and half their range. The paper reports that its sparse schemes match "
        "full training on the same families of models; its figures by data set are not public.",
    )


def _mean(record: Record | None) -> str:
    if record is None:
        return NOTHING
    spread = (record.max - record.min) / 2
    return f"{100 * record.value:.1f} ± {100 * spread:.1f}"


def _llama(records: Sequence[Record]) -> JoinedTable | None:
    """Return our planned and modelled figures, and those that the paper measured on a Jetson AGX
    Orin."""
    those = [x for x in records if x.model == LLAMA and x.batch == 1 and x.scheme in METHODS]
    # Records of 8-bit optimizer states carry a note; the paper's table has none.
    ours = [x for x in those if x.engine == OURS and x.note is None]
    kinds = dict.fromkeys((x.scheme, x.dtype) for x in ours)
    rows = [
        (f"{scheme}, {dtype}", *_step(those, OURS, scheme, dtype), *_public_steps(those, scheme))
        for scheme, dtype in sorted(kinds, key=lambda kind: METHODS.index(kind[0]))
    ]
    if not rows:
        return None
    return JoinedTable(
        "LLaMA2-7B, batch 1, 512 tokens, Jetson AGX Orin",
        ("method", "GB", "s", "paper GB", "paper s", "PyTorch GB", "PyTorch s"),
        tuple(rows),
        "Ours is not run: memory is planned, seconds are modelled by the roofline of the GPU, a "
        "bound that no kernel beats. The type is that of frozen weights; the paper names none.",
    )


def _public_steps(records: Sequence[Record], scheme: str) -> tuple[str, ...]:
    return (*_step(records, PAPER, scheme, "f32"), *_step(records, PYTORCH, scheme, "f32"))


def _step(records: Sequence[Record], engine: str, scheme: str, dtype: str) -> tuple[str, str]:
    """Return the gigabytes and the seconds of an engine's step."""
    kind = (engine, scheme, dtype)
    values = {
        x.metric: x.value
        for x in records
        if (x.engine, x.scheme, x.dtype) == kind and (engine != OURS or x.note is None)
    }
    size = values.get("planned_bytes", values.get("peak_rss_bytes"))
    ms = values.get("modelled_ms", values.get("step_ms"))
    return (
        NOTHING if size is None else f"{size / 1e9:.1f}",
        NOTHING if ms is None else f"{ms / 1e3:.2f}",
    )
