"""The command that lists the boards; it needs none of the farm's packages."""

import click
from rich.table import Table

from pockengine.farm.boards.board import Board, Remote, load_boards
from pockengine.farm.cli.base import CONSOLE, plain_errors


@click.command()
@plain_errors
def boards() -> None:
    """List the boards: what they are, where they are."""
    table = Table()
    for heading in ("board", "device", "kind", "where", "tags"):
        table.add_column(heading)
    for board in load_boards():
        table.add_row(board.name, board.device, board.kind, _where(board), " ".join(board.tags))
    CONSOLE.print(table)


def _where(board: Board) -> str:
    place = board.place
    if isinstance(place, Remote):
        return f"{place.user}@{place.host}:{place.port}"
    return "this machine" if board.kind == "local" else "emulated here"
