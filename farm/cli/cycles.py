"""The command that models a marked program's time on a board that is not connected."""

import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, fields, replace
from pathlib import Path

import click
from rich.box import SIMPLE
from rich.table import Table

from pockengine.farm.cli.base import CONSOLE, plain_errors
from pockengine.farm.cycles.calibration import Figure, figures, net_figure
from pockengine.farm.cycles.core import THUMB, modelled_devices
from pockengine.farm.cycles.firmware import model_firmware
from pockengine.farm.cycles.inference import model_inference
from pockengine.farm.cycles.modelled import Cycles, Modelled, model_regions, what_it_means

FIRMWARE_DEVICES = modelled_devices(THUMB)
DEVICES = (*modelled_devices(), *FIRMWARE_DEVICES)
PARTS = tuple(field.name for field in fields(Cycles))


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--device", type=click.Choice(DEVICES), default="rpi4", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each region.")
@click.option("--calibration", is_flag=True, help="List public figures and the model's.")
@click.option("--net", help="Model the inference of a net of --calibration, by its name (minutes).")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@plain_errors
def cycles(
    device: str, as_json: bool, calibration: bool, net: str | None, command: tuple[str, ...]
) -> None:
    """Model the milliseconds of a static aarch64 program's marked regions, a training step each.

    COMMAND is the program with its arguments, for a microcontroller a firmware, which reads its
    files in this folder. It marks its regions by `hint #100` and `hint #101`, as PockEngine does
    around each step. The first region starts with empty caches.
    """
    if [bool(command), calibration, net is not None].count(True) != 1:
        raise click.UsageError("give a COMMAND to model, or --net alone, or --calibration alone")
    if calibration:
        CONSOLE.print(calibration_table(figures()))
        return
    if net is not None:
        figure = net_figure(device, net)
        found = model_inference(device, net)
        CONSOLE.print(calibration_table([replace(figure, modelled_ms=found.milliseconds)]))
    regions = (found,) if net is not None else _model(device, command)
    if as_json:
        for region in regions:
            click.echo(json.dumps(asdict(region)))
        return
    CONSOLE.print(regions_table(regions))
    CONSOLE.print(f"{what_it_means(device)} --calibration lists them.")


def _model(device: str, command: tuple[str, ...]) -> tuple[Modelled, ...]:
    if device not in FIRMWARE_DEVICES:
        return model_regions(device, command)
    if len(command) > 1:
        raise click.UsageError(f"{device} runs one firmware, without arguments; leave {command[1]}")
    return model_firmware(device, Path(command[0]), Path.cwd())


def regions_table(regions: Sequence[Modelled]) -> Table:
    """Format regions: instructions, millions of cycles by cause, milliseconds."""
    table = Table(box=SIMPLE)
    table.add_column("region")
    for heading in ("M instructions", *(f"{part} Mcycles" for part in PARTS), "modelled ms"):
        table.add_column(heading, justify="right")
    for number, region in enumerate(regions, 1):
        millions = (region.instructions, *astuple(region.cycles))
        table.add_row(
            str(number), *(f"{x / 1e6:.2f}" for x in millions), f"{region.milliseconds:.2f}"
        )
    return table


def calibration_table(rows: Sequence[Figure]) -> Table:
    """Lay out the public figures and the model's."""
    table = Table(box=SIMPLE)
    for heading in ("device", "what", "net", "half"):
        table.add_column(heading)
    for heading in ("measured ms", "modelled ms", "error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        times = (f"{row.measured_ms:.4g}", f"{row.modelled_ms:.4g}", f"{row.error:+.0%}")
        table.add_row(row.device, row.what, row.net, row.half, *times)
    return table
