"""`pockengine search MODEL --contributions TABLE --memory 250KB`: find the scheme to train."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from pockengine.cli.option_fields import device_option, field_option
from pockengine.cli.options import ModelChoice, OutputFile, make_folder_of, model_argument
from pockengine.cli.quantize import quantize_options
from pockengine.cli.subject import (
    DECODER_OPTIMIZER,
    OPTIMIZER,
    course_of,
    open_subject,
    open_tuning,
)
from pockengine.cli.texts import RowForm, data_option, row_options
from pockengine.cli.units import count, size, time
from pockengine.compiler.optim import Optimizer
from pockengine.compiler.quantize.int8 import Int8
from pockengine.compiler.sparse import Scheme, preset
from pockengine.compiler.sparse.scheme import save_scheme
from pockengine.devices import Device, find_device, known_devices, load_device
from pockengine.errors import FinetuneError
from pockengine.finetune.candidates import FOUND, SchemeCandidate, candidates, presets_within
from pockengine.finetune.contributions import Contributions, Header, Key, judge_of, read_table
from pockengine.finetune.cost import CostModel
from pockengine.finetune.cost_measured import count_instructions
from pockengine.finetune.executor import open_executor
from pockengine.finetune.front import device_table, draw_front, race_table
from pockengine.finetune.gains import UNITS, Signal, signal_of
from pockengine.finetune.judges import ACCURACY, Judge
from pockengine.finetune.race import Standing, race
from pockengine.finetune.search import EVALUATIONS, Budget, Front, Progress, SearchEffort, search
from pockengine.finetune.search_limits import (
    TRIES,
    SearchLimits,
    budget_of,
    first_within,
    tightened,
)
from pockengine.finetune.search_validate import check_data, finalists, recipe_of, trainer
from pockengine.finetune.selection import DATA_CRITERIA
from pockengine.finetune.shortfall import Shortfall
from pockengine.finetune.shrinkage import shrunk
from pockengine.finetune.space import space_of
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Tuning
from pockengine.finetune.trial import TrialOutcome, check_examples
from pockengine.finetune.trial_channels import settle_channels
from pockengine.terminal import PlainConsole, counted

WIDTH = 140
REPORT_EVERY = 50
"""Evaluations between two progress lines."""
FINALISTS = 4
RATE_FACTORS = (0.25, 1.0, 4.0)
"""Rates tried by each finalist, relative to that of the contributions."""

NSGA2, RANDOM = "NSGA-II", "random draws"


@dataclass(frozen=True)
class SearchOptions:
    """The command-line options; their click help documents them."""

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
    data: Path | None
    validation: float
    count: bool
    full: bool
    quantize: Int8 | None
    form: RowForm

    def tuning(self, data: Path) -> Tuning:
        """Read the data, and hold out the evaluation examples."""
        return open_tuning(self.model, data, self.validation, self.form)

    @property
    def limits(self) -> SearchLimits:
        """The given limits."""
        return SearchLimits(self.memory, self.latency, self.instructions)


@click.command("search")
@model_argument(8, loss=False)
@click.option("--contributions", required=True, type=click.Path(path_type=Path))
@click.option("--memory", type=size, help="Arena beyond inference, plus optimizer states: 250KB.")
@click.option("--latency", type=time, help="Time of a step: 20ms. Modelled; calibrated on host.")
@click.option(
    "--instructions", type=count, help="Instructions of a step, one emulated thread: 30M."
)
@device_option
@click.option("--evaluations", default=EVALUATIONS, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--control", is_flag=True, help="Also run a random search, for comparison.")
@click.option("--out", required=True, type=OutputFile(), help="File of the scheme, TOML.")
@click.option("--weights", type=click.Path(path_type=Path), help="As in sensitivity.")
@click.option("--classes", type=click.IntRange(2), help="As in sensitivity.")
@field_option("optimizer", None, f"{OPTIMIZER}; {DECODER_OPTIMIZER} for a decoder")
@quantize_options
@click.option(
    "--validate", "tried", type=click.IntRange(1), help="Number of found schemes to train."
)
@data_option(required=False, words="Data to train and compare schemes on.")
@click.option("--validation", default=0.2, show_default=True, help="As in sensitivity.")
@click.option(
    "--full/--no-full", default=True, help="Also train in full, to show the cost of the budget."
)
@click.option("--count", is_flag=True, help="Count instructions on devices that support it.")
@row_options(None, "Decoders: ")
def search_command(model: ModelChoice, optimizer: Optimizer | None, **options: Any) -> None:
    """Find the scheme of MODEL with the largest gain within a budget on a device.

    The gains are those measured by `pockengine sensitivity`; the cost is that of the compiled
    program. With --train, the best schemes found and the presets that fit are trained and
    compared. Writes the scheme, and a chart of gain against memory. No test set is read.
    """
    optimizer, _ = course_of(model, optimizer)
    _search(SearchOptions(model, optimizer=optimizer, **options))


def _search(options: SearchOptions) -> None:
    if options.tried is not None and options.data is None:
        raise click.UsageError("--validate fine-tunes: give the data by --train")
    subject = _opened(options)
    if options.data is not None:  # before the search, which takes minutes
        tuning = options.tuning(options.data)
        check_examples(subject, tuning.train, tuning.validation)
    header, trials = read_contributions(options.contributions, subject)
    judge = judge_of(header)
    signal = signal_of(trials, judge)
    click.echo(str(signal), err=True)
    device = find_device(options.device)
    costs = CostModel(subject.graph, device, options.optimizer, subject.integers)
    console = PlainConsole(WIDTH)
    fronts, found = _fronts_and_candidates(options, costs, signal)
    results: list[Standing] = []
    full: Standing | None = None
    if options.data is not None:
        results, full = _raced(options, subject, [one.scheme for one in found], header)
        console.print(race_table(results, found, judge))
        by_scheme = {one.scheme: one for one in found}
        found = [by_scheme[result.scheme] for result in results]
    best, measured = first_within(found, options.limits, costs)
    result = next((one for one in results if one.scheme == best.scheme), None)
    comment = describe(
        options, subject.batch, best, signal=signal, result=result, measured=measured, judge=judge
    )
    if result is not None and full is not None:
        shortfall = Shortfall(result, full, costs.cost(full.scheme).memory_bytes, judge)
        comment = f"{comment}\n{shortfall}"
    scheme = _settled(options, subject, replace(best.scheme, name=options.out.stem))
    make_folder_of(options.out)
    save_scheme(scheme, options.out, comment)
    _show(options, subject, costs, scheme=scheme, fronts=fronts, console=console)
    console.print(f"{comment}\nscheme {options.out}")


def _fronts_and_candidates(
    options: SearchOptions, costs: CostModel, signal: Signal
) -> tuple[dict[str, Front], list[SchemeCandidate]]:
    """Return the fronts of the searches, and the candidates of the race (or, without data, the
    choice).

    Presets take part only in races: only training can compare them with found schemes.
    """
    budget = budget_of(options.limits, costs)
    gains = signal.contributions
    if options.data is None:
        if gains is None:
            raise FinetuneError(
                f"{signal}; measure with more seeds or epochs (pockengine sensitivity), or give "
                "the data by --train, and the presets are compared by real training"
            )
        click.echo("the presets are not compared: that takes the data, by --train", err=True)
        fronts = _fronts(options, costs, gains, budget)
        return fronts, candidates(costs, fronts[NSGA2].points, ())
    presets = presets_within(costs, budget, None if gains is None else shrunk(gains))
    if gains is None:
        return {}, candidates(costs, (), presets)
    fronts = _fronts(options, costs, gains, budget)
    points = fronts[NSGA2].points
    places = finalists([point.gain for point in points], options.tried or FINALISTS)
    return fronts, candidates(costs, [points[place] for place in places], presets)


def _opened(options: SearchOptions) -> Subject:
    arguments = (options.model, options.classes, options.weights, options.quantize, options.form)
    return open_subject(*arguments)


def read_contributions(path: Path, subject: Subject) -> tuple[Header, Mapping[Key, TrialOutcome]]:
    """Read a table; FinetuneError if it was measured on another model."""
    header, trials = read_table(path)
    if header.get("graph") != subject.digest():
        raise FinetuneError(
            f"{path} was measured on another model ({header.get('subject')}), or on other weights "
            "of it; give the same MODEL, --weights, --classes, --batch, --max-length and "
            "--quantize; a function that draws weights must seed them (torch.manual_seed)"
        )
    return header, trials


def _fronts(
    options: SearchOptions, costs: CostModel, contributions: Contributions, budget: Budget
) -> dict[str, Front]:
    """Search; repeat within less time if the result exceeds the allowed instructions."""
    space = space_of(costs.graph, contributions.gains)
    samplers = {NSGA2: "nsga2"} | ({RANDOM: "random"} if options.control else {})
    fronts: dict[str, Front] = {}
    for _ in range(TRIES):
        for name, sampler in samplers.items():
            fronts[name] = search(
                costs,
                space,
                contributions,
                budget=budget,
                effort=SearchEffort(options.evaluations, options.seed, sampler, warm=name == NSGA2),
                progress=_teller(name, options.evaluations, UNITS[contributions.measure]),
            )
        lower = tightened(budget, fronts[NSGA2].best, options.limits, costs)
        if lower is None:
            break
        click.echo("it takes more instructions than that; searching within less", err=True)
        budget = lower
    return fronts


def _teller(name: str, evaluations: int, unit: str) -> Progress:
    def tell(count: int, gain: float) -> None:
        if count % REPORT_EVERY == 0 or count == evaluations:
            done = f"{name}: {count} of {evaluations} schemes evaluated"
            click.echo(f"{done}, best predicted gain {100 * gain:.2f} {unit}", err=True)

    return tell


def _settled(options: SearchOptions, subject: Subject, scheme: Scheme) -> Scheme:
    """Choose channels by the training examples, if the scheme requires that."""
    if all(choice.by not in DATA_CRITERIA for _, choice in scheme.rules):
        return scheme
    if options.data is None:
        raise FinetuneError("channels are to be chosen by data: give the examples by --train")
    return settle_channels(subject, scheme, options.tuning(options.data).train)


def _raced(
    options: SearchOptions, subject: Subject, schemes: Sequence[Scheme], header: Header
) -> tuple[list[Standing], Standing | None]:
    """Fine-tune the candidates like the table's trials, at similar rates.

    Full fine-tuning, the second result, runs in the same way if it is requested and not a
    candidate.
    """
    assert options.data is not None  # as the caller has checked
    tuning = options.tuning(options.data)
    check_data(header, tuning)
    recipe, seeds = recipe_of(header, options.optimizer)
    click.echo(
        f"fine-tuning {len(schemes)} schemes, the best with {counted(len(seeds), 'seed')}", err=True
    )
    folder = options.contributions.with_name(f"{options.contributions.name}.work")
    presets = [scheme for scheme in schemes if not scheme.name.startswith(FOUND)]
    rates = [recipe.rate * factor for factor in RATE_FACTORS]
    with open_executor() as executor:
        run = trainer(subject, tuning, executor, folder)
        standings = race(schemes, presets, recipe, rates=rates, seeds=seeds, run=run)
        full = preset("full", subject.graph)
        if not options.full or full in schemes:
            return standings, None
        click.echo("fine-tuning full, too, to see what the budget costs", err=True)
        try:
            return standings, race([full], (), recipe, rates=rates, seeds=seeds, run=run)[0]
        except FinetuneError as error:  # the found scheme stays the best within the budget
            click.echo(str(error), err=True)
            return standings, None


def describe(
    options: SearchOptions,
    batch: int,
    best: SchemeCandidate,
    signal: Signal,
    result: Standing | None,
    measured: str,
    judge: Judge = ACCURACY,
) -> str:
    """Describe a scheme in a few lines."""
    cost = best.cost
    lines = [f"Searched for {options.model.name}, batch {batch}, on {options.device}; {signal}."]
    if best.gain is not None and signal.contributions is not None:
        unit = UNITS[signal.contributions.measure]
        lines.append(f"Predicted gain over the head alone: {100 * best.gain:.2f} {unit}.")
    if result is not None:
        seeds = counted(len(result.scores), "seed")
        lines.append(
            f"{best.scheme.name} won by real training: {judge.described(result.mean)} on the "
            f"validation set over {seeds}, at the rate {result.recipe.rate:g}."
        )
    lines.append(
        f"Memory beyond inference: {cost.memory_bytes:,} bytes, of which {cost.state_bytes:,} are "
        f"the optimizer's; the whole arena of a step, which --memory-budget bounds: "
        f"{cost.arena_bytes:,} bytes; {cost.trained:,} numbers train."
    )
    return "\n".join([*lines, measured] if measured else lines)


def _show(
    options: SearchOptions,
    subject: Subject,
    costs: CostModel,
    scheme: Scheme,
    fronts: dict[str, Front],
    console: Console,
) -> None:
    """Draw the front, and print the scheme's cost on each device."""
    if fronts:
        picture = options.out.with_suffix(".svg")
        memory = None if options.memory is None else int(options.memory)
        title = f"{options.model.name}, batch {subject.batch}, on {options.device}"
        draw_front(fronts, memory, title, picture)
        console.print(f"front {picture}")

    def counter(of: Scheme, device: Device) -> int:
        return count_instructions(subject.graph, costs.training(of), device)

    devices = [load_device(name) for name in known_devices()]
    counted = counter if options.count else None
    console.print(device_table(subject.graph, costs.training(scheme), devices, counted))
