"""Markdown tables of the documentation, built from records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pockengine.tests.docs.records import RESULTS, Figure, read_figures

MOST_CELL = 120
"""Most characters in a cell; longer text does not belong in a table."""


def _significant(value: float) -> str:
    """Format with three significant digits and a thousands separator."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


UNITS: dict[str, Callable[[float], str]] = {
    "count": lambda value: f"{value:,.0f}",
    "millions": lambda value: f"{value / 1e6:,.1f}\N{NO-BREAK SPACE}M",
    "ms": _significant,
    "s": _significant,
    "seconds of ms": lambda value: _significant(value / 1e3),
    "MiB": lambda value: _significant(value / 2**20),
    "KiB": lambda value: f"{value / 2**10:,.0f}",
    "KB": lambda value: f"{value / 1e3:,.0f}",
    "MB": lambda value: f"{value / 1e6:,.0f}",
    "GB": lambda value: f"{value / 1e9:.1f}",
    "percent": lambda value: f"{100 * value:.1f}",
}

ENGINES = {
    "pockengine": "PockEngine",
    "jax-jit": "JAX",
    "mnn-train": "MNN",
    "ort-training": "ONNX Runtime",
    "peft": "PEFT",
    "tf-eager": "TensorFlow, eager",
    "tf-graph": "TensorFlow, graph",
    "tf-xla": "TensorFlow, XLA",
    "tinyengine": "TinyEngine",
    "torch-eager": "PyTorch",
    "torch-eager-cl-malloc": "PyTorch, channels-last",
    "torch-eager-malloc": "PyTorch",
}
SCHEMES = {"sparse-by-hand": "sparse, by hand", "lora-8": "LoRA, rank 8", "lora": "LoRA, rank 8"}
DATA = {
    "banking77": "BANKING77",
    "cifar10": "CIFAR-10",
    "clinc150": "CLINC150",
    "cola": "CoLA",
    "fashion_mnist": "Fashion-MNIST",
    "sst2": "SST-2",
}
MODELS = {
    "bert_base-128": "BERT-base",
    "distilbert": "DistilBERT",
    "distilbert-128": "DistilBERT",
    "gemma-3-1b": "Gemma 3 1B",
    "gemma-3-270m": "Gemma 3 270M",
    "gpt-2-medium": "GPT-2 medium",
    "gpt-2-small": "GPT-2 small",
    "llama-110m": "LLaMA 110M",
    "llama-110m-256": "LLaMA 110M",
    "llama-15m": "LLaMA 15M",
    "llama2-7b": "LLaMA2 7B",
    "mbv2-w0.35": "MobileNetV2-0.35",
    "mcunet-128": "MCUNet-128",
    "mcunet-5fps": "MCUNet",
    "minilm-l6": "MiniLM-L6",
    "mobilenet_v2-0.35-128": "MobileNetV2-0.35-128",
    "mobilenet_v2-0.35-96": "MobileNetV2-0.35-96",
    "mobilenet_v2-1-224": "MobileNetV2-224",
    "mobilenet_v2-224": "MobileNetV2-224",
    "proxyless-w0.3": "ProxylessNAS-0.3",
    "qwen-2.5-0.5b": "Qwen 2.5 0.5B",
    "qwen2.5-0.5b": "Qwen2.5 0.5B",
    "qwen2.5-1.5b": "Qwen2.5 1.5B",
    "qwen3-4b": "Qwen3 4B",
    "residual-chain-19504": "19,504 nodes",
    "residual-chain-4880": "4,880 nodes",
    "residual-chain-980": "980 nodes",
    "resnet18-64": "ResNet-18-64",
    "resnet20": "ResNet-20",
    "resnet50-224": "ResNet-50-224",
    "resnet8": "ResNet-8",
    "tinyllama-1.1b": "TinyLlama 1.1B",
    "vit-tiny-224": "ViT-tiny-224",
    "vit-tiny-64": "ViT-tiny-64",
}
NAMES: dict[str, dict[Any, str]] = {
    "dataset": DATA,
    "model": MODELS,
    "engine": ENGINES,
    "scheme": SCHEMES,
    "dtype": {"int4": "f32, 4-bit frozen weights"},
    "note": {None: "f32"},
}


@dataclass(frozen=True)
class Column:
    """A figure of each row: the metric of the records that match `where`.

    `besides`: an engine to exclude.
    `lowest`: choose the lowest value, not the newest.
    `named`: show the engine's name too.
    `plus`: a metric to add.
    `hidden`: do not show the column; a `Ratio` uses it.
    """

    title: str
    metric: str
    unit: str
    where: Mapping[str, object] = field(default_factory=dict)
    besides: str = ""
    plus: str = ""
    lowest: bool = False
    named: bool = False
    hidden: bool = False

    def find(self, figures: Sequence[Figure], run: object = None) -> Figure | None:
        """Return the row's figure from `run` if it has one, otherwise the newest."""
        found = [
            one
            for one in figures
            if one.matches({"metric": self.metric, **self.where})
            and (not self.besides or one.engine != self.besides)
        ]
        together = [one for one in found if one.run == run]
        if self.lowest:
            return min(together or found, key=lambda one: one.record.value, default=None)
        newest = max(together or found, key=lambda one: one.record.time, default=None)
        if newest is None or not self.plus:
            return newest
        other = replace(self, metric=self.plus, plus="").find(figures, newest.run)
        assert other is not None, f"no {self.plus} beside {self.metric}"
        total = newest.record.value + other.record.value
        return replace(newest, record=replace(newest.record, value=total, min=total, max=total))

    def show(self, figure: Figure | None) -> str:
        """Return the cell."""
        if figure is None:
            return ""
        cell = UNITS[self.unit](figure.record.value)
        return f"{cell} ({ENGINES[figure.record.engine]})" if self.named else cell


@dataclass(frozen=True)
class Ratio:
    """The ratio of two columns: `over` divided by `under`."""

    title: str
    over: str
    under: str


@dataclass(frozen=True)
class Table:
    """A table of a page: a row for each combination of the `rows` fields, in the file's order."""

    file: str
    rows: Mapping[str, str]
    columns: Sequence[Column | Ratio]
    where: Mapping[str, object] = field(default_factory=dict)
    folder: Path = RESULTS
    names: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    cpu: str = ""

    def figures(self) -> list[Figure]:
        """Return the valid records that match `where`."""
        figures = read_figures(self.folder / self.file, self.cpu, self.command)
        return [one for one in figures if one.record.ok and one.matches(self.where)]

    def body(self) -> list[tuple[tuple[str, ...], dict[str, Figure | None]]]:
        """Return each row: its names, and a figure per column."""
        groups: dict[tuple[object, ...], list[Figure]] = {}
        for one in self.figures():
            groups.setdefault(tuple(getattr(one, name) for name in self.rows), []).append(one)
        return [
            (tuple(self._name(*pair) for pair in zip(self.rows, key, strict=True)), cells)
            for key, group in groups.items()
            if (cells := self._cells(group))
        ]

    def text(self) -> str:
        """Return the table in Markdown, followed by its command, CPU and date."""
        shown = [one for one in self.columns if not getattr(one, "hidden", False)]
        heads = [*self.rows.values(), *(column.title for column in shown)]
        lines = [_line(heads), _line(["---"] * len(heads)).replace(" ", "")]
        used: list[Figure] = []
        for names, cells in self.body():
            used += [one for one in cells.values() if one is not None]
            lines.append(_line([*names, *(self._show(column, cells) for column in shown)]))
        return "\n".join([*lines, "", self._source(used)]) + "\n"

    def _cells(self, group: Sequence[Figure]) -> dict[str, Figure | None]:
        columns = [column for column in self.columns if isinstance(column, Column)]
        lead = columns[0].find(group)
        run = lead.run if lead else None
        cells = {column.title: column.find(group, run) for column in columns}
        return cells if any(cells.values()) else {}

    def _show(self, column: Column | Ratio, cells: Mapping[str, Figure | None]) -> str:
        if isinstance(column, Column):
            return column.show(cells[column.title])
        over, under = cells[column.over], cells[column.under]
        if over is None or under is None:
            return ""
        ratio = over.record.value / under.record.value
        return f"{ratio:.2f}x" if ratio < 2 else f"{ratio:.1f}x"

    def _name(self, name: str, value: object) -> str:
        text = self.names.get(str(value)) or NAMES.get(name, {}).get(value, value)
        return str(text)

    def _source(self, used: Sequence[Figure]) -> str:
        commands = dict.fromkeys([f"`{self.command or one.command}`" for one in used])
        cpus = dict.fromkeys(one.cpu for one in used)
        days = sorted({one.record.time[:10] for one in used})
        dates = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        return f"{', '.join(commands)}. {'; '.join(cpus)}. Recorded {dates}."


def _line(cells: Sequence[str]) -> str:
    long = [cell for cell in cells if len(cell) > MOST_CELL]
    assert not long, f"cells of more than {MOST_CELL} characters: {long}"
    return f"| {' | '.join(cells)} |"
