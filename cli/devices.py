"""`pockengine devices`."""

import click

from pockengine.devices import known_devices, load_device
from pockengine.terminal import PlainConsole

CONSOLE = PlainConsole()


@click.command()
def devices() -> None:
    """List the devices that programs can be built for."""
    for name in known_devices():
        CONSOLE.print(f"{name:12} {load_device(name).description}")
