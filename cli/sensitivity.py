"""`pockengine sensitivity MODEL --data DATA --out TABLE`: measure the gain of training each
tensor.
"""

from pathlib import Path

import click
from rich.box import SIMPLE
from rich.table import Table

from pockengine.cli.option_fields import field_option
from pockengine.cli.options import ModelChoice, OutputFile, model_argument
from pockengine.cli.quantize import quantize_options
from pockengine.cli.subject import (
    DECODER_OPTIMIZER,
    DECODER_RATE,
    OPTIMIZER,
    RATE,
    course_of,
    open_subject,
    open_tuning,
)
from pockengine.cli.texts import RowForm, data_option, row_options
from pockengine.compiler.optim import Optimizer
from pockengine.compiler.quantize.int8 import Int8
from pockengine.compiler.sparse.channels import CRITERIA
from pockengine.errors import printable
from pockengine.extras import need
from pockengine.finetune.contributions import Contributions
from pockengine.finetune.executor import PROCESSES, open_executor
from pockengine.finetune.judges import ACCURACY, Judge, judge_named
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.selection import DATA_CRITERIA
from pockengine.finetune.sensitivity import SensitivityPlan, TrialProgress, measure
from pockengine.finetune.space import SHARES, items_of
from pockengine.terminal import PlainConsole, counted, duration

WIDTH = 120
ALL_CRITERIA = (*CRITERIA, *DATA_CRITERIA)
"""Criteria for choosing channels."""


@click.command("sensitivity")
@model_argument(8, loss=False)
@data_option(required=True, words="Inputs and target; texts for a decoder.")
@click.option("--out", required=True, type=OutputFile(), help="Table file, JSON lines.")
@click.option("--weights", type=click.Path(path_type=Path), help="Pretrained weights, safetensors.")
@click.option("--classes", type=click.IntRange(2), help="Classes of a new head.")
@click.option(
    "--validation", default=0.2, show_default=True, help="Share of the data for evaluation."
)
@click.option(
    "--share", "shares", multiple=True, type=float, help="Share of channels; may be repeated."
)
@click.option("--by", default="magnitude", show_default=True, type=click.Choice(ALL_CRITERIA))
@click.option("--upper", default=1.0, show_default=True, help="Share of the layers, from the top.")
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--epochs", default=5, show_default=True, type=click.IntRange(1))
@field_option("optimizer", None, f"{OPTIMIZER}; {DECODER_OPTIMIZER} for a decoder")
@quantize_options
@click.option(
    "--rate",
    type=float,
    show_default=f"{RATE:g}; {DECODER_RATE:g} for a decoder",
    help="Maximum learning rate.",
)
@row_options(None, "Decoders: ")
@click.option("--workers", type=click.IntRange(1), help="Processes; default: one per core.")
@click.option("--scheduler", default=PROCESSES, show_default=True, help="Dask scheduler, tcp://...")
def sensitivity_command(
    model: ModelChoice,
    data: Path,
    out: Path,
    weights: Path | None,
    classes: int | None,
    validation: float,
    shares: tuple[float, ...],
    by: str,
    upper: float,
    seeds: int,
    epochs: int,
    optimizer: Optimizer | None,
    quantize: Int8 | None,
    rate: float | None,
    form: RowForm,
    workers: int | None,
    scheduler: str,
) -> None:
    """Fine-tune one tensor of MODEL at a time, together with the head, and measure its gain.

    DATA is .npz or .safetensors with the model's inputs and `target`, one row per example. For a
    decoder's folder it is texts, as for `finetune-lm`. A part of DATA is held out for evaluation,
    by accuracy or by the loss. If killed, the same command continues where it stopped.
    """
    if scheduler != PROCESSES:
        need(f"--scheduler {scheduler}", "search")
    subject = open_subject(model, classes, weights, quantize=quantize, form=form)
    tuning = open_tuning(model, data, validation, form)
    items = items_of(subject.graph, shares or SHARES, by=by, upper=upper)
    optimizer, rate = course_of(model, optimizer, rate)
    recipe = Recipe(rate, epochs, optimizer=optimizer)
    with open_executor(scheduler, workers) as executor:
        plan = SensitivityPlan(subject, tuning, items, recipe=recipe, seeds=range(seeds))
        contributions = measure(plan, out, executor, tell_progress)
    console = PlainConsole(WIDTH)
    title = f"{model.name}, batch {subject.batch}, on {data.name}"
    console.print(report(title, contributions, judge_named(subject.judge)))
    console.print(f"{counted(len(contributions.gains), 'item')} in {out}")


def tell_progress(progress: TrialProgress) -> None:
    """Print one progress line: finished, remaining, estimated time."""
    left = (
        "" if progress.seconds_left is None else f", about {duration(progress.seconds_left)} left"
    )
    remaining = progress.total - progress.done
    text = f"{progress.done} of {progress.total} trials, {remaining} to go{left} ({progress.last})"
    click.echo(printable(text), err=True)


def report(title: str, contributions: Contributions, judge: Judge = ACCURACY) -> Table:
    """Return the items as a table, largest gain first."""
    caption = (
        f"over the head alone: {judge.described(contributions.baseline)} on the validation set"
    )
    table = Table(title=f"Gain in {judge.name}: {title}", caption=caption, box=SIMPLE)
    for heading in ("trained beside the head", "share", "channels by"):
        table.add_column(heading)
    for heading in (f"{judge.unit} gained", "spread", "seeds"):
        table.add_column(heading, justify="right")
    for item, gain in sorted(contributions.gains.items(), key=lambda pair: -pair[1].mean):
        name = str(item) if item.kind == "biases" else item.name
        numbers = (f"{100 * gain.mean:+.2f}", f"{100 * gain.spread:.2f}", str(gain.n))
        table.add_row(name, f"{item.share:g}", item.by, *numbers)
    return table
