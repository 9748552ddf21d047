"""`pockengine models` and `pockengine devices`: list the names for the command line."""

import click
from rich.box import SIMPLE
from rich.table import Table

from pockengine.cli.options import console, json_option, print_json
from pockengine.devices import known_devices, load_device
from pockengine.models.registry import FAMILIES, ModelFamily

FORMS = (
    "MODEL may also be package.module:function, which returns (module, example_inputs) and is "
    "found in the current folder too; a file of ONNX (.onnx), Keras (.keras, .h5) or TFLite "
    "(.tflite); the folder of a SavedModel; or that of a Hugging Face model with its weights as "
    "safetensors."
)


@click.command()
@json_option
def models(as_json: bool) -> None:
    """List the models that can be named, and other forms of MODEL."""
    rows = [_family(name, family) for name, family in FAMILIES.items()]
    if as_json:
        print_json(rows)
        return
    table = Table(box=SIMPLE)
    for heading in ("MODEL", "takes", "size", "loss"):
        table.add_column(heading)
    for row in rows:
        table.add_row(row["model"], row["takes"], row["size"], row["loss"])
    terminal = console()
    terminal.print(table)
    terminal.print(FORMS)


def _family(name: str, family: ModelFamily) -> dict[str, str]:
    step = f", a multiple of {family.step}" if family.step > 1 else ""
    largest = f" to {family.largest}" if family.vocabulary else " or more"
    pictures = "colored pictures" if family.channels == 3 else "gray pictures"
    return {
        "model": family.form(name),
        "takes": f"{family.vocabulary} tokens" if family.vocabulary else pictures,
        "size": f"{family.smallest}{largest}{step}",
        "loss": "its own" if family.own_loss else f"cross_entropy, {family.classes} classes",
    }


@click.command()
@json_option
def devices(as_json: bool) -> None:
    """List the devices that programs can be built for."""
    found = {name: load_device(name).description for name in known_devices()}
    if as_json:
        print_json(found)
        return
    table = Table.grid(padding=(0, 1, 0, 0))
    for row in found.items():
        table.add_row(*row)
    console().print(table)
