"""The cells of the paper's tables: which there are, which cannot be measured and why, and how long.

A cell is one engine's step on a model, batch and scheme. Nothing heavy is imported here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pockengine.devices import load_device
from pockengine.devices.host import detect_cores
from pockengine.farm.bench.schemes import SPARSE, listed_model, scheme_for
from pockengine.farm.boards.board import Board, Local
from pockengine.farm.load import free_bytes
from pockengine.farm.references.engines import find_engine
from pockengine.farm.references.guest import FRAMEWORKS
from pockengine.farm.references.instructions import GUEST
from pockengine.models.registry import parse_model

OURS = "pockengine"
ENGINES = (OURS, "tf-graph", "tf-eager", "torch-eager", "mnn-train")
EAGER = "tf-eager"
TENSORFLOW = ("tf-graph", EAGER)
SLOWEST = (EAGER, "mnn-train")
"""Engines that `--quick` runs for `SMALLEST` alone."""
SCHEMES = ("full", "bias-only", SPARSE)
TRANSFORMERS = ("vit_tiny", "distilbert", "bert_base")
MODELS = (
    *("mcunet-128", "mobilenet_v2-0.35-128", "vit_tiny-224", "mobilenet_v2-1.0-224"),
    *("distilbert-128", "resnet50-224", "bert_base-128"),
)
QUICK_MODELS = ("mobilenet_v2-0.35-64", "mcunet-64", "vit_tiny-32")
SMALLEST = ("mcunet-64", 1, SCHEMES[0])
FORWARD_MACS = {
    "mcunet": 23e6 / 128**2,
    "mobilenet_v2": 300e6 / 224**2,
    "resnet50": 4.1e9 / 224**2,
    "vit_tiny": 1.1e9 / 224**2,
    "distilbert": 42.5e6,
    "bert_base": 85e6,
}
"""Of a pixel, of MobileNetV2 at width 1; of a token. For estimates alone."""
SECONDS_OF_CELL = {
    OURS: 24.0,
    "tf-graph": 43.0,
    EAGER: 106.0,
    "torch-eager": 19.0,
    "mnn-train": 57.0,
}
"""Medians of `--quick` without the arithmetic; most of it is the model of a core."""
SECONDS_OF_START = {"tensorflow": 60.0, "torch": 65.0, "mnn": 10.0, OURS: 10.0}
SECONDS_OF_TRANSFORMERS = 90.0
"""To import the package in the process of PyTorch."""
SECONDS_OF_NETWORK = {"tensorflow": 25.0, "torch": 3.0, "mnn": 3.0, OURS: 8.0}
"""To build a model for a batch size, which the cells of one process share."""
SECONDS_PER_MAC = {
    OURS: 4.9e-7,
    "tf-graph": 6.5e-7,
    EAGER: 9.7e-7,
    "torch-eager": 9.7e-7,
    "mnn-train": 1.6e-6,
}
"""Core seconds of a cell, all its steps included, per multiply-add of one forward pass.

The model of a core runs 6 million instructions a second, a plain count 16. The instructions per
multiply-add lie between those of the smallest and the largest nets recorded at 224 pixels.
"""
SECONDS_ALONE = 600.0
"""A cell estimated to take longer builds its network itself, so that all cores share the work."""
LANE_BYTES = 3 << 30
"""Memory of an emulated process of TensorFlow or PyTorch with a network at 224 pixels."""
HOST_SHARE = 0.02
"""Time of a cell on this machine, relative to its time under emulation."""


@dataclass(frozen=True, order=True)
class Cell:
    """One engine's training step on a model, batch and scheme."""

    model: str
    batch: int
    scheme: str
    engine: str

    @property
    def job(self) -> tuple[str, int, str]:
        """The setup that all engines share."""
        return self.model, self.batch, self.scheme

    @property
    def framework(self) -> str:
        """The process that measures it: ours, or a framework's."""
        if self.engine == OURS:
            return OURS
        return next(name for name, kind in FRAMEWORKS.items() if self.engine in kind.engines)

    @property
    def is_transformer(self) -> bool:
        """Whether the model is one of the package transformers."""
        return parse_model(self.model).family in TRANSFORMERS

    @property
    def imports_transformers(self) -> bool:
        """Whether the engine builds the model by the package itself."""
        return self.framework == "torch" and self.is_transformer

    def __str__(self) -> str:
        """Return the words for a line of progress."""
        return f"{self.model}, batch {self.batch}, {self.scheme}, {self.engine}"


@dataclass(frozen=True)
class PaperChoice:
    """The user's selection of the suite; empty: all."""

    board: Board
    models: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    schemes: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    quick: bool = False


def usable_cores() -> int:
    """Return how many cores have memory for a lane, at least one; containers may limit both."""
    return max(1, min(detect_cores(), free_bytes() // LANE_BYTES))


@dataclass(frozen=True)
class PaperPlan:
    """The cells to measure, in order, and the reasons of those that cannot be.

    `cores` are the lanes in which an emulated board's cells are measured. On this machine they are
    timed, so there is one lane.
    """

    board: Board
    cells: tuple[Cell, ...]
    gaps: dict[Cell, str]
    cores: int = field(default_factory=usable_cores)

    def without(self, done: Sequence[Cell]) -> "PaperPlan":
        """Return the plan of the remaining cells."""
        measured = set(done)
        return replace(self, cells=tuple(cell for cell in self.cells if cell not in measured))

    @property
    def seconds(self) -> float:
        """An estimate on idle cores: of the longest of the lanes that run at a time."""
        return max((self.lane_seconds(lane) for lane in self.lanes()), default=0.0)

    def lanes(self) -> list[list[Cell]]:
        """Return the cells that each lane measures, one after another.

        Short cells of one framework, model and batch stay together, as they share its network. The
        longest such groups come first, each to the lane that ends first with it.
        """
        groups: dict[tuple[object, ...], list[Cell]] = {}
        for cell in self.cells:
            alone = cell if seconds_of(cell) > SECONDS_ALONE else None
            groups.setdefault((cell.framework, cell.model, cell.batch, alone), []).append(cell)
        count = 1 if isinstance(self.board.place, Local) else self.cores
        lanes: list[list[Cell]] = [[] for _ in range(count)]
        for group in sorted(groups.values(), key=self.lane_seconds, reverse=True):
            min(lanes, key=lambda lane: self.lane_seconds([*lane, *group])).extend(group)
        place = {cell: index for index, cell in enumerate(self.cells)}
        return [sorted(lane, key=place.__getitem__) for lane in lanes if lane]

    def lane_seconds(self, lane: Sequence[Cell]) -> float:
        """Estimate a lane."""
        share = HOST_SHARE if isinstance(self.board.place, Local) else 1.0
        starts = sum(SECONDS_OF_START[name] for name in {cell.framework for cell in lane})
        networks = {(cell.framework, *cell.job[:2]) for cell in lane}
        starts += sum(SECONDS_OF_NETWORK[name] for name, *_ in networks)
        if any(cell.imports_transformers for cell in lane):
            starts += SECONDS_OF_TRANSFORMERS
        return share * (starts + sum(map(seconds_of, lane)))


def plan(choice: PaperChoice) -> PaperPlan:
    """Return the cells and the gaps of a choice; FarmError for names that do not exist."""
    cells: list[Cell] = []
    gaps: dict[Cell, str] = {}
    for engine in choice.engines:
        if engine != OURS:
            find_engine(engine)
    for model in choice.models or (QUICK_MODELS if choice.quick else MODELS):
        for batch in choice.batches or batches_of(model, choice.quick):
            for scheme in choice.schemes or SCHEMES:
                for engine in choice.engines or _engines(choice.quick, (model, batch, scheme)):
                    cell = Cell(str(listed_model(model)), batch, scheme, engine)
                    reason = why_not(cell, choice.board)
                    if reason is None:
                        cells.append(cell)
                    else:
                        gaps[cell] = reason
    ordered = sorted(cells, key=lambda x: (macs_of(x), x.job, ENGINES.index(x.engine)))
    return PaperPlan(choice.board, tuple(ordered), gaps)


def _engines(quick: bool, job: tuple[str, int, str]) -> tuple[str, ...]:
    """Return the engines of a job.

    --quick runs the slowest for its smallest network alone, and imports no transformers.
    """
    if not quick:
        return ENGINES
    slow = () if job == SMALLEST else SLOWEST
    return tuple(x for x in ENGINES if x not in slow and not Cell(*job, x).imports_transformers)


def batches_of(model: str, quick: bool) -> tuple[int, ...]:
    """Return the batch sizes of a model: the paper's, smaller ones of texts and of --quick."""
    if listed_model(model).family in TRANSFORMERS:
        return (1,) if quick else (1, 4)
    return (1, 4) if quick else (1, 8)


def why_not(cell: Cell, board: Board) -> str | None:
    """Return why a cell has no figure on a board; None if it can be measured."""
    device = load_device(board.device)
    if isinstance(board.place, Local):
        return _why_no_form(cell)
    if not board.emulated:
        return "a board's own steps are timed by `bench --device`, without --suite"
    if device.cpu.arch != GUEST:
        command = f"bench --device={board.device} --model={cell.model} --int8"
        return f"no Linux: `{command}` counts our step" if cell.engine == OURS else (
            f"{cell.engine} does not exist for {device.cpu.arch}"
        )  # fmt: skip
    return _why_no_form(cell)


def _why_no_form(cell: Cell) -> str | None:
    """Return why the references have no form of a cell, on any machine."""
    if cell.engine == "mnn-train" and cell.is_transformer:
        return "MNN's nets are convolutional here"
    if cell.engine == "mnn-train" and cell.scheme != "full":
        return "MNN trains everything here"
    return None


def paper_scheme(scheme: str, model: str) -> str:
    """Return a preset or a file: `sparse` is the paper's published scheme where there is one."""
    name = parse_model(model)
    width = "" if name.width is None else f"-{name.width:g}"
    published = Path(__file__).with_name(f"{name.family}{width}.toml")
    return str(published) if scheme == SPARSE and published.exists() else scheme_for(scheme, model)


def seconds_of(cell: Cell) -> float:
    """Estimate a cell's seconds under emulation on an idle core."""
    arithmetic = SECONDS_PER_MAC.get(cell.engine, 1e-6) * macs_of(cell)
    return SECONDS_OF_CELL.get(cell.engine, 30.0) + arithmetic


def macs_of(cell: Cell) -> float:
    """Estimate the multiply-adds of one forward pass over a cell's batch."""
    name = parse_model(cell.model)
    one = FORWARD_MACS.get(name.family, 1e5)
    size = name.size if name.known.vocabulary else name.size**2
    return cell.batch * one * size * (1.0 if name.width is None else name.width**1.5)
