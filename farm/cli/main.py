"""`bazel run //farm -- COMMAND`: boards, jobs and results of the farm. Each command is short here.

What is measured on boards, and compared, is `bazel run //farm:bench`.
"""

import shlex

import click
from rich.table import Table

from pockengine.errors import FarmError
from pockengine.farm.boards.board import Board, Remote, board_for, load_boards, own_file
from pockengine.farm.boards.connect import connect
from pockengine.farm.boards.enroll import Login, Wishes, default_key, enroll
from pockengine.farm.boards.facts import ask
from pockengine.farm.boards.inventory import add_board
from pockengine.farm.cli.ab import ab
from pockengine.farm.cli.base import CONSOLE, from_user, plain_errors
from pockengine.farm.cli.jobs import leases, log, quarantine, run
from pockengine.farm.cli.results import compare, history


@click.group()
def cli() -> None:
    """The device farm: boards, leases, jobs, results."""


@cli.command()
@plain_errors
def boards() -> None:
    """List the boards: what they are, where they are."""
    table = Table()
    for heading in ("board", "device", "kind", "where", "tags"):
        table.add_column(heading)
    for board in load_boards():
        table.add_row(board.name, board.device, board.kind, _where(board), " ".join(board.tags))
    CONSOLE.print(table)


@cli.command()
@click.argument("address")
@click.option("--key", type=click.Path(dir_okay=False), help="Private ed25519 key to log in with.")
@click.option("--name", help="Default: the host's name.")
@click.option("--device", help="A file of devices/; default: what the board says it is.")
@click.option("--tag", "tags", multiple=True)
@click.option("--power", default="", help="Command that gets on, off or cycle at its end.")
@click.option("--console", "console", default="", help="/dev/ttyUSB0 or tcp://host:port.")
@click.option("--workdir", default="/tmp/pockengine", show_default=True)
@click.option("--fingerprint", "expected", help="Accept this host key only, without asking.")
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
    for fact in facts.describe():
        CONSOLE.print(f"  {fact}")
    add_board(board, own_file())
    CONSOLE.print(f"{board.name}, device {board.device}, added to {own_file()}")


@cli.command()
@click.argument("board")
@plain_errors
def ping(board: str) -> None:
    """Connect to a board (an emulated one boots) and print what it says of itself."""
    with connect(board_for(board, load_boards())) as transport:
        for fact in ask(transport).describe():
            CONSOLE.print(fact)


def _where(board: Board) -> str:
    place = board.place
    if isinstance(place, Remote):
        return f"{place.user}@{place.host}:{place.port}"
    return "this machine" if board.kind == "local" else "emulated here"


for command in (ab, compare, history, leases, log, quarantine, run):
    cli.add_command(command)

if __name__ == "__main__":
    cli()
