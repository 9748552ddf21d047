"""The database that clients of one farm share: leases, queues, quarantine, jobs.

SQLite in the user's data folder, or any SQLAlchemy URL. Every task is one serialized transaction:
SQLite's write lock, or an advisory lock of PostgreSQL.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sql

from pockengine.farm.results.database import (
    PATIENCE_S,
    create_engine,
    default_url,
    parse_url,
    patiently,
    transaction,
)

T = TypeVar("T")

METADATA = sql.MetaData()
OWNER = ("owner", "host", "pid", "started", "label")


def owner_columns() -> list["sql.Column[Any]"]:
    """Return new columns for the owner of a row, and its heartbeats."""
    return [
        sql.Column("owner", sql.Text, nullable=False),
        sql.Column("host", sql.Text, nullable=False),
        sql.Column("pid", sql.BigInteger, nullable=False),
        sql.Column("started", sql.BigInteger, nullable=False),
        sql.Column("label", sql.Text, nullable=False),
        sql.Column("beat", sql.BigInteger, nullable=False, default=0),
        sql.Column("since", sql.Text, nullable=False),
    ]


LEASES = sql.Table(
    "leases", METADATA, sql.Column("board", sql.Text, primary_key=True), *owner_columns(),
    sql.Column("ticket", sql.Text, nullable=False),
)  # fmt: skip
TICKETS = sql.Table(
    "tickets", METADATA, sql.Column("id", sql.Integer, primary_key=True), *owner_columns(),
    sql.Column("ticket", sql.Text, nullable=False, unique=True),
    sql.Column("boards", sql.JSON, nullable=False),
    sql.Column("priority", sql.Integer, nullable=False),
)  # fmt: skip
QUARANTINE = sql.Table(
    "quarantine",
    METADATA,
    sql.Column("board", sql.Text, primary_key=True),
    sql.Column("reason", sql.Text, nullable=False),
    sql.Column("since", sql.Text, nullable=False),
)
EVENTS = sql.Table(
    "events",
    METADATA,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("key", sql.Text, nullable=False, unique=True),
    sql.Column("time", sql.Text, nullable=False),
    sql.Column("board", sql.Text, nullable=False),
    sql.Column("text", sql.Text, nullable=False),
)
JOBS = sql.Table(
    "jobs",
    METADATA,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("batch", sql.Text, nullable=False),
    sql.Column("name", sql.Text, nullable=False),
    sql.Column("spec", sql.JSON, nullable=False),
    sql.Column("boards", sql.JSON, nullable=False),
    sql.Column("priority", sql.Integer, nullable=False),
    sql.Column("state", sql.Text, nullable=False),  # queued, running, done
    sql.Column("attempt", sql.Integer, nullable=False),  # the running or the last one
    sql.Column("verdict", sql.Text),  # passed, failed, unrunnable; NULL until done
    sql.Column("message", sql.Text),
    sql.UniqueConstraint("batch", "name"),
)
ATTEMPTS = sql.Table(
    "attempts", METADATA,
    sql.Column("job", sql.Integer, sql.ForeignKey("jobs.id"), primary_key=True),
    sql.Column("attempt", sql.Integer, primary_key=True),
    sql.Column("board", sql.Text, nullable=False), *owner_columns(),
    sql.Column("outcome", sql.Text),  # passed, failed, infrastructure; NULL while running
    sql.Column("message", sql.Text),
    sql.Column("log", sql.Text),
    sql.Column("claim", sql.Text, nullable=False, unique=True),
)  # fmt: skip


class Store:
    """An open database of a farm."""

    def __init__(self, url: str | None = None, patience_s: float = PATIENCE_S) -> None:
        """Open by SQLAlchemy URL; wait up to `patience_s` for an unavailable database."""
        self.url = parse_url(url) if url else default_url("farm.sqlite")
        self.patience_s = patience_s
        self._engine = create_engine(self.url, exclusive=True)
        self._made = False

    def work(self, task: Callable[[sql.Connection], T]) -> T:
        """Run a task in one serialized transaction; DatabaseDown if the database stays unavailable.

        The task may run twice if the result of the first commit is unknown.
        """
        return patiently(self.url, self.patience_s, lambda: self._once(task))

    def close(self) -> None:
        """Release the connections."""
        self._engine.dispose()

    def _once(self, task: Callable[[sql.Connection], T]) -> T:
        result = transaction(self._engine, task, None if self._made else METADATA)
        self._made = True
        return result
