"""Quarantined boards with reasons, released by hand; and the log of each board."""

from collections.abc import Mapping
from secrets import token_hex
from typing import Any

import sqlalchemy as sql

from pockengine.errors import FarmError
from pockengine.farm.jobs.store import EVENTS, QUARANTINE, Store
from pockengine.farm.results.results import now


class Quarantine:
    """The quarantined boards, and the farm's log."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def shut_out(self, board: str, reason: str) -> None:
        """Quarantine a board; an existing reason is kept."""
        key = token_hex(8)

        def task(connection: sql.Connection) -> None:
            there = sql.select(QUARANTINE).where(QUARANTINE.c.board == board)
            if connection.execute(there).first() is None:
                row = {"board": board, "reason": reason, "since": now()}
                connection.execute(sql.insert(QUARANTINE), row)
            _note(connection, key, board, f"quarantine: {reason}")

        self._store.work(task)

    def let_in(self, board: str) -> None:
        """Release a board from quarantine; FarmError if it is not quarantined."""
        key = token_hex(8)

        def task(connection: sql.Connection) -> bool:
            gone = connection.execute(sql.delete(QUARANTINE).where(QUARANTINE.c.board == board))
            if gone.rowcount:
                _note(connection, key, board, "released from quarantine")
            return _is_noted(connection, key)

        if not self._store.work(task):
            raise FarmError(f"{board} is not in quarantine")

    def reasons(self) -> Mapping[str, tuple[str, str]]:
        """Return reason and time, by board."""
        rows = self._store.work(lambda c: c.execute(sql.select(QUARANTINE)).all())
        return {row.board: (row.reason, row.since) for row in rows}

    def note(self, board: str, text: str) -> None:
        """Append a line about a board to the log."""
        key = token_hex(8)
        self._store.work(lambda c: _note(c, key, board, text))

    def diary(self, board: str | None = None) -> list[Mapping[str, Any]]:
        """Return the log, oldest first."""
        query = sql.select(EVENTS).order_by(EVENTS.c.id)
        if board is not None:
            query = query.where(EVENTS.c.board == board)
        return self._store.work(lambda c: [dict(row) for row in c.execute(query).mappings()])


def _note(connection: sql.Connection, key: str, board: str, text: str) -> None:
    """Append a line exactly once, even if the connection fails."""
    if not _is_noted(connection, key):
        row = {"key": key, "time": now(), "board": board, "text": text}
        connection.execute(sql.insert(EVENTS), row)


def _is_noted(connection: sql.Connection, key: str) -> bool:
    return (
        connection.execute(sql.select(EVENTS.c.id).where(EVENTS.c.key == key)).first() is not None
    )
