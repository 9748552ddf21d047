"""Commands about one board: enroll it, print its facts."""

import shlex
import time

import click

from pockengine.errors import FarmError
from pockengine.farm.boards.board import board_for, load_boards, own_file
from pockengine.farm.boards.connect import connect
from pockengine.farm.boards.enroll import Login, Wishes, default_key, enroll
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
@click.option("--workdir", default="/tmp/pockengine", show_default=True)
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
    workdir: str,
    expected: str | None,
) -> None:
    """Add the board at ssh://user@host: ask what it is, show its host key and pin it."""
    chosen = from_user(key) if key else default_key()
    if chosen is None:
        raise FarmError("no key to log in with: give --key, or make one: ssh-keygen -t ed25519")
    wishes = Wishes(
        key_file=str(chosen),
        name=name,
        device=device,
        tags=tags,
        power=tuple(shlex.split(power)),
        console=console,
        workdir=workdir,
    )

    def confirm(line: str, fingerprint: str) -> bool:
        CONSOLE.print(f"host key: {line}\nfingerprint: {fingerprint}")
        return fingerprint == expected if expected else click.confirm("Is it this board's?")

    board, facts = enroll(Login.parse(address), wishes, confirm)
    _show(facts)
    add_board(board, own_file())
    CONSOLE.print(f"{board.name}, device {board.device}, added to {own_file()}")


@click.command()
@click.argument("board")
@plain_errors
def ping(board: str) -> None:
    """Connect to a board (an emulated one boots) and print what it says of itself."""
    with connect(board_for(board, load_boards())) as transport:
        _show(ask(transport))


def _show(facts: BoardFacts) -> None:
    """Print a board's facts; requirements were checked when it was opened."""
    for fact in facts.describe():
        CONSOLE.print(fact)
    CONSOLE.print("shell, tools, work folder: usable")
    for warning in facts.warnings(time.time()):
        CONSOLE.print(f"WARNING {warning}")
