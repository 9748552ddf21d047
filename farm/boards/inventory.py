"""Write boards into the user's inventory: entries are added, never rewritten.

Comments and order of the user's file are preserved. The file is left unchanged unless the new entry
reads back as exactly the same board.
"""

import json
from dataclasses import MISSING, fields
from pathlib import Path

from pockengine.errors import FarmError
from pockengine.farm.boards.board import Board, load_boards
from pockengine.farm.names import check_name
from pockengine.files import locked, write_whole


def add_board(board: Board, file: Path) -> None:
    """Append an entry; FarmError if the name is taken or invalid, or the file is broken."""
    check_name(board.name, "board")
    file.parent.mkdir(parents=True, exist_ok=True)
    with locked(file.with_name(f".{file.name}.lock")):
        old = file.read_text() if file.exists() else ""
        if any(other.name == board.name for other in (load_boards([file]) if old else ())):
            raise FarmError(f"{file} has a board {board.name!r} already; give another --name")
        gap = "\n" if old.strip() else ""

        def write(part: Path) -> None:
            part.write_text(f"{old}{gap}{entry_text(board)}")
            if board not in load_boards([part]):
                raise FarmError(f"{board.name!r} cannot be written to {file} without a change")

        write_whole(file, write)


def entry_text(board: Board) -> str:
    """Return a board as a TOML table, without default values."""
    lines = [f"[{_string(board.name)}]", f"device = {_string(board.device)}"]
    lines.append(f"kind = {_string(board.kind)}")
    if board.tags:
        lines.append(f"tags = {_value(board.tags)}")
    for field in fields(board.place):
        value = getattr(board.place, field.name)
        if field.default is MISSING or value != field.default:
            lines.append(f"{field.name} = {_value(value)}")
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_string(word) for word in value)}]"
    return str(value) if isinstance(value, int) else _string(str(value))


def _string(text: str) -> str:
    """Return a TOML basic string: as in JSON, but with DEL escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
