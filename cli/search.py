"""`pockengine search MODEL --contributions TABLE --memory 250KB`: find the scheme to train."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from pockengine.cli.options import ModelChoice, device_option, model_argument, optimizer_option
from pockengine.cli.sensitivity import OPTIMIZER
from pockengine.cli.subject import open_subject
from pockengine.cli.units import count, size, time
from pockengine.compiler.optim import Optimizer
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.scheme import save_scheme
from pockengine.devices import Device, find_device, known_devices, load_device
from pockengine.errors import FinetuneError
from pockengine.finetune.contributions import Contributions, Header, contributions_of, read_table
from pockengine.finetune.cost import CostModel
from pockengine.finetune.cost_measured import count_instructions
from pockengine.finetune.executor import open_executor
from pockengine.finetune.front import device_table, draw_front
from pockengine.finetune.ranks import rank_correlation
from pockengine.finetune.search import EVALUATIONS, Front, Point, Progress, search
from pockengine.finetune.search_limits import (
    TRIES,
    Limits,
    budget_of,
    first_that_keeps,
    tightened,
)
from pockengine.finetune.search_validate import (
    Validated,
    check_data,
    finalists,
    recipe_of,
    validate,
)
from pockengine.finetune.selection import DATA_CRITERIA
from pockengine.finetune.space import scheme_of, space_of
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import load_tuning
from pockengine.finetune.trial_channels import settle_channels
from pockengine.terminal import PlainConsole

WIDTH = 140
TOLD = 50
"""Evaluations between two lines of progress."""

NSGA2, RANDOM = "NSGA-II", "random draws"


@dataclass(frozen=True)
class SearchOptions:
    """What the command line says; click's help explains each."""

    model: ModelChoice
    contributions: Path
    memory: float | None
    latency: float | None
    instructions: float | None
    device: str
    evaluations: int
    seed: int
    control: bool
    out: Path
    weights: Path | None
    classes: int | None
    optimizer: Optimizer
    tried: int | None
    train: Path | None
    validation: float
    count: bool

    @property
    def limits(self) -> Limits:
        """The limits that were given."""
        return Limits(self.memory, self.latency, self.instructions)


@click.command("search")
@model_argument(8, loss=False)
@click.option("--contributions", required=True, type=click.Path(path_type=Path))
@click.option("--memory", type=size, help="Beyond inference, arena and optimiser states: 250KB.")
@click.option("--latency", type=time, help="Of a step: 20ms. Modelled, on host by measured ends.")
@click.option("--instructions", type=count, help="Of a step of one emulated thread: 30M.")
@device_option
@click.option("--evaluations", default=EVALUATIONS, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--control", is_flag=True, help="Search by random draws too, and show both.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The scheme, TOML.")
@click.option("--weights", type=click.Path(path_type=Path), help="As for sensitivity.")
@click.option("--classes", type=click.IntRange(2), help="As for sensitivity.")
@optimizer_option(OPTIMIZER)
@click.option("--validate", "tried", type=click.IntRange(1), help="Fine-tune the best so many.")
@click.option("--train", type=click.Path(path_type=Path), help="The data to validate on.")
@click.option("--validation", default=0.2, show_default=True, help="As for sensitivity.")
@click.option("--count", is_flag=True, help="Count instructions on each device that can.")
def search_command(model: ModelChoice, **options: Any) -> None:
    """Find the scheme of MODEL that gains the most accuracy within a budget on a device.

    The gains are those that `pockengine sensitivity` measured; the cost is that of the compiled
    program. Writes the scheme, and beside it the front as a picture. No test set is read.
    """
    _search(SearchOptions(model, **options))


def _search(options: SearchOptions) -> None:
    if options.tried is not None and options.train is None:
        raise click.UsageError("--validate fine-tunes: give the data by --train")
    subject = open_subject(options.model, options.classes, options.weights)
    header, contributions = read_contributions(options.contributions, subject)
    costs = CostModel(subject.graph, find_device(options.device), options.optimizer)
    console = PlainConsole(WIDTH)
    fronts = _fronts(options, costs, contributions)
    points: Sequence[Point] = fronts[NSGA2].points
    if options.tried is not None:
        chosen = [points[place] for place in finalists([p.gain for p in points], options.tried)]
        validated = _validated(options, subject, chosen or points[:1], header, contributions)
        console.print(validation_table(validated))
        points = [result.point for result in sorted(validated, key=lambda result: -result.gain)]
    best, measured = first_that_keeps(points, options.limits, costs)
    scheme = _settled(options, subject, scheme_of(subject.graph, best.items, options.out.stem))
    comment = describe(options.model.name, options.device, best, measured)
    save_scheme(scheme, options.out, comment)
    _show(options, subject, costs, scheme, fronts, console)
    console.print(f"{comment}\nscheme {options.out}")


def read_contributions(path: Path, subject: Subject) -> tuple[Header, Contributions]:
    """Read a table; FinetuneError where it was measured on another model."""
    header, trials = read_table(path)
    if header.get("graph") != subject.digest():
        raise FinetuneError(
            f"{path} was measured on another model ({header.get('subject')}); give the same MODEL, "
            "--weights, --classes and --batch"
        )
    return header, contributions_of(trials)


def _fronts(
    options: SearchOptions, costs: CostModel, contributions: Contributions
) -> dict[str, Front]:
    """Search, again within less where what was found takes more instructions than allowed."""
    space = space_of(costs.graph, contributions.gains)
    budget = budget_of(options.limits, costs)
    samplers = {NSGA2: "nsga2"} | ({RANDOM: "random"} if options.control else {})
    fronts: dict[str, Front] = {}
    for _ in range(TRIES):
        for name, sampler in samplers.items():
            fronts[name] = search(
                costs,
                space,
                contributions,
                budget,
                evaluations=options.evaluations,
                seed=options.seed,
                sampler=sampler,
                warm=name == NSGA2,
                progress=_teller(name, options.evaluations),
            )
        lower = tightened(budget, fronts[NSGA2].best, options.limits, costs)
        if lower is None:
            break
        click.echo("it takes more instructions than that; searching within less", err=True)
        budget = lower
    return fronts


def _teller(name: str, evaluations: int) -> Progress:
    def tell(count: int, gain: float) -> None:
        if count % TOLD == 0 or count == evaluations:
            done = f"{name}: {count} of {evaluations} schemes evaluated"
            click.echo(f"{done}, best predicted gain {100 * gain:.2f} points", err=True)

    return tell


def _settled(options: SearchOptions, subject: Subject, scheme: Scheme) -> Scheme:
    """Choose channels by the training examples where the scheme wants that."""
    if all(choice.by not in DATA_CRITERIA for _, choice in scheme.rules):
        return scheme
    if options.train is None:
        raise FinetuneError("channels are to be chosen by data: give the examples by --train")
    tuning = load_tuning(options.train, options.validation, seed=0)
    return settle_channels(subject, scheme, tuning.train)


def _validated(
    options: SearchOptions,
    subject: Subject,
    points: Sequence[Point],
    header: Header,
    contributions: Contributions,
) -> list[Validated]:
    assert options.train is not None  # as the command has checked
    tuning = load_tuning(options.train, options.validation, seed=0)
    check_data(header, tuning)
    recipe, seeds = recipe_of(header, options.optimizer)
    click.echo(f"fine-tuning {len(points)} schemes with {len(seeds)} seeds each", err=True)
    folder = options.contributions.with_name(f"{options.contributions.name}.work")
    with open_executor() as executor:
        return validate(
            subject, tuning, points, recipe, seeds, contributions.baseline, executor, folder
        )


def validation_table(results: Sequence[Validated]) -> Table:
    """Return predicted beside validated gains, and how well their ranks agree."""
    correlation = rank_correlation(
        [result.point.gain for result in results], [result.gain for result in results]
    )
    agreement = "too few to rank" if correlation is None else f"rank correlation {correlation:+.2f}"
    table = Table(title="Predicted and validated gain, points", caption=agreement, box=SIMPLE)
    for heading in ("items", "predicted", "validated", "spread", "bytes beyond inference"):
        table.add_column(heading, justify="right")
    for result in results:
        numbers = (result.point.gain, result.gain, result.spread)
        row = [f"{100 * number:.2f}" for number in numbers]
        memory = f"{result.point.cost.memory_bytes:,}"
        table.add_row(str(len(result.point.items)), *row, memory)
    return table


def describe(model: str, device: str, best: Point, measured: str) -> str:
    """Say in a few lines what a scheme is."""
    cost = best.cost
    lines = [
        f"Searched for {model} on {device}.",
        f"Predicted gain over the head alone: {100 * best.gain:.2f} points.",
        f"Memory beyond inference: {cost.memory_bytes:,} bytes, of which {cost.state_bytes:,} are "
        f"the optimiser's; {cost.trained:,} numbers train.",
    ]
    return "\n".join([*lines, measured] if measured else lines)


def _show(
    options: SearchOptions,
    subject: Subject,
    costs: CostModel,
    scheme: Scheme,
    fronts: dict[str, Front],
    console: Console,
) -> None:
    """Draw the front and print what the scheme costs on each device."""
    picture = options.out.with_suffix(".svg")
    memory = None if options.memory is None else int(options.memory)
    draw_front(fronts, memory, f"{options.model.name} on {options.device}", picture)

    def counter(of: Scheme, device: Device) -> int:
        return count_instructions(subject.graph, of, device, costs.optimizer)

    devices = [load_device(name) for name in known_devices()]
    counted = counter if options.count else None
    console.print(device_table(subject.graph, scheme, devices, costs.optimizer, counted))
    console.print(f"front {picture}")
