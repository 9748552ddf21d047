"""Commands about one board: enroll it, print its facts."""

import shlex
import time
from dataclasses import replace
from pathlib import Path

import click

from pockengine.errors import FarmError
from pockengine.farm.boards.board import board_for, load_boards, own_file
from pockengine.farm.boards.connect import connect
from pockengine.farm.boards.enroll import PHONE, Login, Wishes, default_key, enroll, enroll_phone
from pockengine.farm.boards.facts import BoardFacts, ask
from pockengine.farm.boards.inventory import add_board
from pockengine.farm.cli.base import CONSOLE, from_user, plain_errors


@click.command()
@click.argument("address")
@click.option(
    "--key",
    type=click.Path(dir_okay=False),
    help="Private key to log in with: ed25519, ECDSA or RSA.",
)
@click.option("--name", help="Default: the host's name.")
@click.option("--device", help="A name listed by `devices`; default: detected on the board.")
@click.option("--tag", "tags", multiple=True)
@click.option("--power", default="", help="Power command; called with on, off or cycle.")
@click.option("--console", "console", default="", help="/dev/ttyUSB0 or tcp://host:port.")
@click.option(
    "--workdir",
    help="Folder for jobs; default: /tmp/pockengine, on a phone /data/local/tmp/pockengine.",
)
@click.option("--fingerprint", "expected", help="Accept only this host key, without asking.")
@plain_errors
def add(
    address: str,
    key: str | None,
    name: str | None,
    device: str | None,
    tags: tuple[str, ...],
    power: str,
    console: str,
    workdir: str | None,
    expected: str | None,
) -> None:
    """Add a board and detect its device. For ssh://user@host, show the host key and pin it.

    adb://SERIAL is a phone: on a cable (`adb devices` lists serials), or host:port in the network.
    """
    wishes = Wishes(
        name=name,
        device=device,
        tags=tags,
        power=_words(power),
        console=console,
        workdir=workdir,
    )

    def confirm(line: str, fingerprint: str) -> bool:
        CONSOLE.print(f"host key: {line}\nfingerprint: {fingerprint}")
        return fingerprint == expected if expected else click.confirm("Is it this board's?")

    if address.startswith(PHONE):
        board, facts = enroll_phone(address.removeprefix(PHONE), wishes)
    else:
        login, key_file = Login.parse(address), str(_chosen_key(key))
        board, facts = enroll(login, replace(wishes, key_file=key_file), confirm)
    _show(facts)
    add_board(board, own_file())
    CONSOLE.print(f"{board.name}, device {board.device}, added to {own_file()}")


def _words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise FarmError(f"--power {command!r} is no command: {error}") from None


def _chosen_key(key: str | None) -> Path:
    chosen = from_user(key) if key else default_key()
    if chosen is None:
        raise FarmError("no key to log in with: give --key, or make one: ssh-keygen -t ed25519")
    return chosen


@click.command()
@click.argument("board")
@plain_errors
def ping(board: str) -> None:
    """Connect to a board (an emulated one boots) and print its facts."""
    with connect(board_for(board, load_boards())) as transport:
        _show(ask(transport))


def _show(facts: BoardFacts) -> None:
    """Print a board's facts; requirements were checked when it was opened."""
    for fact in facts.describe():
        CONSOLE.print(fact)
    CONSOLE.print("shell, tools, work folder: usable")
    for warning in facts.warnings(time.time()):
        CONSOLE.print(f"WARNING {warning}")
