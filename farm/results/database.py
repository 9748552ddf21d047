"""Open a database by URL: SQLite files of this user, or a server such as PostgreSQL.

A locked or unavailable database is waited for, a full disk is not. Tasks must therefore be
idempotent: after a lost connection it is unknown whether the commit arrived.
"""

import os
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sql

from pockengine.errors import DatabaseDown, FarmError
from pockengine.extras import pip_command
from pockengine.farm.progress import say
from pockengine.folders import data_folder

T = TypeVar("T")

PATIENCE_S = 180.0  # a database server restarts in less
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
LOCK_TIMEOUT_S = 30  # how long SQLite waits for another writer of the same file
CONNECT_TIMEOUT_S = 5
ADVISORY_LOCK = 0x706F636B  # any number, the same for all clients of a farm


def parse_url(url: str) -> sql.URL:
    """Read a SQLAlchemy URL; the error does not repeat it, since it may hold a password."""
    try:
        return sql.make_url(url)
    except sql.exc.ArgumentError:
        raise FarmError(
            "cannot open the database: not a SQLAlchemy URL; one is sqlite:////tmp/results.sqlite"
        ) from None


def default_url(file: str) -> sql.URL:
    """Return the URL of an SQLite file in the user's data folder."""
    return sql.URL.create("sqlite", database=str(data_folder() / file))


def check_stored(url: str | None) -> None:
    """Raise FarmError if an SQLite file that a user names does not exist: opening creates it."""
    if url is None:
        return
    parsed = parse_url(url)
    file = parsed.database or ""
    in_memory = not file or file.startswith((":", "file:"))
    if parsed.get_backend_name() == "sqlite" and not in_memory and not Path(file).exists():
        raise FarmError(f"{parsed!r}: there is no such file: name the database that was written to")


def create_engine(url: sql.URL, exclusive: bool = False) -> sql.Engine:
    """Return an engine; nothing is connected yet. FarmError when the URL's driver is missing.

    With `exclusive` a transaction of SQLite takes the write lock at its start, so that what it
    reads is still so when it writes.
    """
    name = url.get_backend_name()
    options: dict[str, Any] = {}
    if name == "sqlite":
        options = {"timeout": LOCK_TIMEOUT_S}
        _make_private(url)
    elif name == "postgresql":
        options = {"connect_timeout": CONNECT_TIMEOUT_S}
    try:
        engine = sql.create_engine(url, connect_args=options, pool_pre_ping=name != "sqlite")
    except ImportError as error:
        fix = pip_command("postgres") if error.name == "psycopg" else f"pip install {error.name}"
        raise FarmError(
            f"{url!r}: cannot open the database: {error.name} is not installed here: {fix}"
        ) from None
    except sql.exc.SQLAlchemyError as error:
        raise FarmError(f"{url!r}: cannot open the database: {error}") from None
    if name == "sqlite" and exclusive:
        sql.event.listen(engine, "connect", _no_implicit_begin)
        sql.event.listen(engine, "begin", _begin_immediate)
    return engine


def _make_private(url: sql.URL) -> None:
    """Create an SQLite file that only its user can read, unless it exists."""
    file = Path(url.database or ".").absolute()
    if not file.parent.is_dir():
        raise FarmError(f"{url!r}: cannot open the database: there is no folder {file.parent}")
    if url.database and not url.database.startswith((":", "file:")):
        with suppress(OSError):  # a connection reports why
            os.close(os.open(file, os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, 0o600))


def transaction(
    engine: sql.Engine, task: Callable[[sql.Connection], T], metadata: sql.MetaData | None
) -> T:
    """Run a task in one serialized transaction of an `exclusive` engine.

    The tables `made` are there before it.
    """
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sql.select(sql.func.pg_advisory_xact_lock(ADVISORY_LOCK)))
        if metadata is not None:
            metadata.create_all(connection)
        return task(connection)


def patiently(url: sql.URL, patience_s: float, task: Callable[[], T]) -> T:
    """Run a task, repeatedly while the database is unavailable; DatabaseDown if it stays so.

    Prints a line once it has waited for a second.
    """
    start, pause, announced = time.monotonic(), FIRST_PAUSE_S, False
    deadline = start + patience_s
    while True:
        try:
            return task()
        except (sql.exc.OperationalError, sql.exc.InterfaceError) as error:
            other = _code(error) == sqlite3.SQLITE_ERROR
            fault = "has other tables than this version's" if other else "does not answer"
            down = f"{url!r}: the database {fault}: {_first_line(error)}"
            if _stays(error) or time.monotonic() + pause > deadline:
                raise DatabaseDown(down) from None
            if not announced and time.monotonic() >= start + 1:
                say(f"{down}; trying again for up to {deadline - time.monotonic():.0f} s")
                announced = True
        except sql.exc.SQLAlchemyError as error:
            raise FarmError(f"{url!r}: {str(error).splitlines()[0]}") from None
        time.sleep(
            pause * random.uniform(0.5, 1.0)
        )  # jitter, so that clients do not return in step
        pause = min(2 * pause, LONGEST_PAUSE_S)


def _first_line(error: sql.exc.DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0]


def _stays(error: sql.exc.DBAPIError) -> bool:
    """Whether SQLite's error is permanent: a full disk, an unwritable file, other tables."""
    return _code(error) in (
        *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN),
        sqlite3.SQLITE_ERROR,
    )


def _code(error: sql.exc.DBAPIError) -> int:
    """Return SQLite's primary error code; that of a busy file for other databases."""
    code: int = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_BUSY)
    return code & 0xFF


def _no_implicit_begin(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # sqlite3 would begin late, and only with a read lock


def _begin_immediate(connection: sql.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
