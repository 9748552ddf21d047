"""The command that lists the boards; it needs none of the farm's packages."""

import json

import click
from rich.table import Table

from pockengine.farm.boards.board import AdbPhone, Board, Remote, load_boards
from pockengine.farm.cli.base import CONSOLE, JSON, plain_errors


@click.command()
@JSON
@plain_errors
def boards(as_json: bool) -> None:
    """List the boards with their kinds and addresses."""
    if as_json:
        rows = [
            {
                "board": board.name,
                "device": board.device,
                "kind": board.kind,
                "where": _where(board),
                "tags": list(board.tags),
            }
            for board in load_boards()
        ]
        click.echo(json.dumps(rows, indent=1))
        return
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
    if isinstance(place, AdbPhone):
        return f"adb {place.serial}"
    return "this machine" if board.kind == "local" else "emulated here"
