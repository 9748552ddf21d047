"""Which parts of stories260K are worth training on other texts, and the schemes of a search.

    bazel run //studies/decoders -- stories260K.bin tok512.bin --data DIR --work DIR --json FILE

For each set of texts: the gain of each matrix and of the norms of the last blocks, each trained
alone with the last norm (sensitivity); a search within LoRA's memory and within half of full
training's memory beyond inference, followed by a race of the best three; and presets. Every scheme
tries the same rates on the validation texts with the first seed. The test texts are evaluated once
per seed. A killed study can be continued.
"""

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

import click
from rich.table import Table

from pockengine import AdamW, __version__
from pockengine.compiler.ir import Graph
from pockengine.compiler.sparse import Scheme, preset
from pockengine.compiler.sparse.scheme import FULL as FULLY
from pockengine.compiler.sparse.scheme import save_scheme
from pockengine.devices import load_device
from pockengine.farm.results.results import write_lines
from pockengine.farm.results.setup import EngineRun, Setup
from pockengine.finetune.candidates import FOUND
from pockengine.finetune.contributions import Contributions, read_table
from pockengine.finetune.cost import Cost, CostModel
from pockengine.finetune.executor import open_executor
from pockengine.finetune.gains import signal_of
from pockengine.finetune.judges import HELD_OUT, perplexity_of
from pockengine.finetune.race import Standing, race
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.search import Budget, SearchEffort, search
from pockengine.finetune.search_validate import finalists
from pockengine.finetune.sensitivity import SensitivityPlan, measure
from pockengine.finetune.space import items_of, scheme_of, space_of
from pockengine.models.llama2c import write_folder
from pockengine.studies.decoders.desk import BATCH, LENGTH, Desk, losses_of, open_desk
from pockengine.studies.decoders.grid import grid
from pockengine.studies.decoders.texts import CUTS, cut
from pockengine.terminal import PlainConsole

SEEDS = (0, 1, 2)
GAIN_SEEDS = SEEDS[:2]
"""Seeds of contributions: two, to separate gains from noise."""
RATE, RATES = 4e-3, (1e-3, 4e-3, 1.6e-2, 6.4e-2)
"""Rate of contributions, and the rates that every scheme tries."""
FULL, LORA = "full", "lora-8"
PRESETS = (
    *(FULL, LORA, "bias-only", "head-only", "last-2-blocks"),
    *("sparse", "sparse-3-4", "sparse-2-3", "sparse-1-2"),
)
VARIANTS = {
    "sparse, v o mlp": ("sparse", ("v", "o", "gate", "up", "down")),
    "sparse, mlp": ("sparse", ("gate", "up", "down")),
    "sparse-3-4, v o mlp": ("sparse-3-4", ("v", "o", "gate", "up", "down")),
}
"""Presets with other matrices in the same blocks."""
EVALUATIONS, FINALISTS = 40, 3
MODEL = "stories260K"


@dataclass(frozen=True)
class StudyPlan:
    """The fixed schemes by name, the rates that each scheme tries, and whether to search."""

    schemes: Sequence[str]
    rates: Sequence[float]
    searches: bool


@dataclass(frozen=True)
class CellRow:
    """A scheme's cost, the rate chosen on validation, and test losses by seed."""

    scheme: Scheme
    cost: Cost
    rate: float
    losses: tuple[float, ...]

    @property
    def spread(self) -> float:
        """Standard deviation over the seeds."""
        return stdev(self.losses) if len(self.losses) > 1 else 0.0


def contributions_of(desk: Desk, recipe: Recipe, table: Path) -> Contributions | None:
    """Measure the gain of each item; None if all gains are noise."""
    items = items_of(desk.subject.graph, (1.0,))
    measure(
        SensitivityPlan(desk.subject, desk.tuning, items, recipe, GAIN_SEEDS),
        table,
        desk.executor,
        lambda progress: click.echo(f"{progress.done} of {progress.total}: {progress.last}"),
        desk.folder,
    )
    signal = signal_of(read_table(table)[1], HELD_OUT)
    click.echo(str(signal))
    return signal.contributions


def rows_of(
    desk: Desk,
    costs: CostModel,
    contributions: Contributions | None,
    recipe: Recipe,
    plan: StudyPlan,
) -> list[CellRow]:
    """Return the fixed schemes, then the winner of the search within each budget."""
    graph = desk.subject.graph
    fixed = [
        variant(graph, name, *VARIANTS[name]) if name in VARIANTS else preset(name, graph)
        for name in plan.schemes
    ]
    standings = race(fixed, (), recipe, plan.rates, SEEDS[:1], desk.validated)
    by_name = {one.scheme.name: one for one in standings}
    rows = [_row(desk, costs, by_name[one.name]) for one in fixed if one.name in by_name]
    if contributions is None:
        return rows
    memory = {name: costs.cost(preset(name, graph)).memory_bytes for name in (FULL, LORA)}
    for name, limit in (("half", memory[FULL] // 2), (LORA, memory[LORA])):
        found = _searched(costs, contributions, Budget(limit))
        winner = race(found, (), recipe, plan.rates, SEEDS, desk.validated)[0]
        scheme = replace(winner.scheme, name=f"searched within {name}")
        rows.append(_row(desk, costs, replace(winner, scheme=scheme)))
    return rows


def variant(graph: Graph, name: str, base: str, matrices: Sequence[str]) -> Scheme:
    """Return a preset with these LLaMA matrices instead of its own."""
    own = preset(base, graph).resolve(graph)
    norms = {param for param in own if len(graph.params[param].value.shape) == 1}
    blocks = {param.rsplit(".", 3)[0] for param in set(own) - norms}
    ends = tuple(f".{matrix}_proj.weight" for matrix in matrices)
    others = {
        param
        for param in graph.params
        if param.rsplit(".", 3)[0] in blocks and param.endswith(ends)
    }
    return Scheme(name, tuple((param, FULLY) for param in graph.params if param in norms | others))


def _searched(costs: CostModel, contributions: Contributions, budget: Budget) -> list[Scheme]:
    """Return the schemes with the highest predicted gains within a budget."""
    space = space_of(costs.graph, contributions.gains)
    points = search(costs, space, contributions, budget, SearchEffort(EVALUATIONS)).points
    places = finalists([point.gain for point in points], FINALISTS)
    return [
        scheme_of(costs.graph, points[place].items, f"{FOUND}{number}")
        for number, place in enumerate(places, 1)
    ]


def _row(desk: Desk, costs: CostModel, standing: Standing) -> CellRow:
    runs = [(standing.scheme, replace(standing.recipe, seed=seed)) for seed in SEEDS]
    losses = losses_of(desk.tested(runs))
    return CellRow(standing.scheme, costs.cost(standing.scheme), standing.recipe.rate, losses)


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path, exists=True))
@click.argument("tokenizer", type=click.Path(path_type=Path, exists=True))
@click.option("--data", type=click.Path(path_type=Path), envvar="POCKENGINE_DATA", required=True)
@click.option("--texts", multiple=True, type=click.Choice(list(CUTS)), help="By default all.")
@click.option(
    "--scheme", "schemes", multiple=True, type=click.Choice([*PRESETS, *VARIANTS]), help="All."
)
@click.option("--rate", "rates", multiple=True, type=float, help="To try; by default four.")
@click.option("--search/--no-search", "searches", default=True, help="Measure gains and search.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Kept between runs.")
@click.option("--workers", type=click.IntRange(1), help="Processes; by default one a core.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Append records here.")
def main(
    checkpoint: Path,
    tokenizer: Path,
    data: Path,
    texts: Sequence[str],
    work: Path,
    workers: int | None,
    json_file: Path | None,
    schemes: Sequence[str],
    rates: Sequence[float],
    searches: bool,
) -> None:
    """Measure, search and race which parts of stories260K to train, and print the tables."""
    work.mkdir(parents=True, exist_ok=True)
    model = work / MODEL
    write_folder(checkpoint, tokenizer, model)
    costs: CostModel | None = None
    plan = StudyPlan(schemes or (*PRESETS, *VARIANTS), rates or RATES, searches)
    with open_executor(workers=workers) as executor:
        for name in texts or CUTS:
            desk, recipe = _desk(name, data, model, executor)
            costs = costs or CostModel(desk.subject.graph, load_device("host"), AdamW())
            rows = _show(name, desk, costs, recipe, plan)
            if json_file is not None:
                _write(json_file, name, rows)


def _desk(name: str, data: Path, model: Path, executor: Executor) -> tuple[Desk, Recipe]:
    place = cut(name, data, model.parent)
    desk = open_desk(model, place, model.parent, executor)
    return desk, Recipe(RATE, place.epochs, optimizer=AdamW())


def _show(
    name: str, desk: Desk, costs: CostModel, recipe: Recipe, plan: StudyPlan
) -> list[CellRow]:
    """Study one set of texts, print its tables, and write the schemes found."""
    console = PlainConsole(140)
    contributions = None
    if plan.searches:
        contributions = contributions_of(desk, recipe, desk.folder / f"{name}-gains.jsonl")
    if contributions is not None:
        console.print(grid(f"{name}: gain in {contributions.measure}, hundredths", contributions))
    rows = rows_of(desk, costs, contributions, recipe, plan)
    console.print(_table(name, desk, rows))
    for row in rows:
        if row.scheme.name.startswith("searched"):
            path = desk.folder / f"{name}-{row.scheme.name.replace(' ', '-')}.toml"
            save_scheme(row.scheme, path, f"{name}, {row.scheme.name}, rate {row.rate:g}")
    return rows


def _table(name: str, desk: Desk, rows: Sequence[CellRow]) -> Table:
    judged = f"{len(desk.test)} test rows of {LENGTH}, {len(SEEDS)} seeds"
    table = Table(title=f"{name}: {len(desk.tuning.train)} rows train, {judged}")
    for heading in ("scheme", "test loss", "spread", "perplexity", "rate", "trains"):
        table.add_column(heading)
    table.add_column("beyond inference, KiB", justify="right")
    for row in rows:
        loss = fmean(row.losses)
        figures = (f"{loss:.4f}", f"{row.spread:.4f}", f"{perplexity_of(loss):.2f}")
        trained = f"{row.cost.trained:,}"
        size = f"{row.cost.memory_bytes / 1024:,.0f}"
        table.add_row(row.scheme.name, *figures, f"{row.rate:g}", trained, size)
    return table


def _write(path: Path, name: str, rows: Sequence[CellRow]) -> None:
    """Append a record for each scheme's test loss; the note describes how it was found."""
    setup = Setup(MODEL, name, BATCH, 1)
    records = []
    for row in rows:
        note = (
            f"AdamW, rate {row.rate:g}; rows of {LENGTH} tokens; {row.cost.memory_bytes:,} bytes "
            f"beyond inference; {row.cost.trained:,} numbers train"
        )
        records.append(
            setup.record(
                EngineRun("pockengine", __version__, row.scheme.name),
                "loss",
                fmean(row.losses),
                spread=(min(row.losses), max(row.losses), len(row.losses)),
                note=note,
                samples=row.losses,
            )
        )
    write_lines(records, Path(os.environ.get("BUILD_WORKING_DIRECTORY", ".")) / path)


if __name__ == "__main__":
    main()
