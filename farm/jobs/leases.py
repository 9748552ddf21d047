"""Leases of boards: one owner per board, by priority, then first come, first served.

A client queues a ticket that lists the acceptable boards. Every client computes the same assignment
from the tickets: in order, each ticket gets its first free board, and its owner takes the lease.
Entries of dead processes are removed first.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, Protocol, TypeVar

import sqlalchemy as sql

from pockengine.errors import FarmError
from pockengine.farm.jobs.owner import BEAT_S, HeartbeatWatch, Owner
from pockengine.farm.jobs.store import ATTEMPTS, LEASES, QUARANTINE, TICKETS, Store
from pockengine.farm.results.results import now

POLL_S = 0.2
WAIT_S = 3600.0


class LeasedBoard(Protocol):
    """A board leased to this client."""

    board: str

    @property
    def lost(self) -> bool:
        """Whether it was leased to another client meanwhile."""


H = TypeVar("H", bound=LeasedBoard)


class Leasing(Protocol[H]):
    """Interface of a source of boards: the farm's own leases, or another pool."""

    def acquire(
        self,
        boards: Sequence[str],
        priority: int = 0,
        wait_s: float = WAIT_S,
        stop: Callable[[], bool] = lambda: False,
    ) -> H | None:
        """Wait for one of the boards; None if `stop` ends the wait."""

    def release(self, lease: H) -> None:
        """Return a board."""


class Leases:
    """A client of the farm's boards. Close it: a heartbeat thread runs until then."""

    def __init__(self, store: Store, owner: Owner | None = None, beat_s: float = BEAT_S) -> None:
        self.owner = owner or Owner.here()
        self._store = store
        self._watch = HeartbeatWatch()
        self._beat_s = beat_s
        self._stop = threading.Event()
        self._heart: threading.Thread | None = None
        self._lost: set[str] = set()
        self._owned: dict[str, str] = {}  # ticket -> board
        self._lock = threading.Lock()

    @contextmanager
    def lease(
        self, boards: Sequence[str], priority: int = 0, wait_s: float = WAIT_S
    ) -> Iterator["Lease"]:
        """Wait for one of the boards and yield its lease; it is released at the end.

        FarmError if none becomes free within `wait_s`, with the owners of the boards, and
        quarantined ones with reasons.
        """
        lease = self.acquire(boards, priority, wait_s)
        assert lease is not None  # there is no `stop`, so only a timeout ends the wait
        try:
            yield lease
        finally:
            self.release(lease)

    def acquire(
        self,
        boards: Sequence[str],
        priority: int = 0,
        wait_s: float = WAIT_S,
        stop: Callable[[], bool] = lambda: False,
    ) -> "Lease | None":
        """Wait for one of the boards; `release` returns it. None when `stop` ends the wait."""
        if not boards:
            raise FarmError("no board to wait for")
        self._start_heart()
        ticket = token_hex(8)
        deadline = time.monotonic() + wait_s
        try:
            while True:
                board = self._store.work(lambda c: self._try(c, ticket, boards, priority))
                if board is not None:
                    with self._lock:
                        self._owned[ticket] = board
                    return Lease(board, ticket, self)
                if stop():
                    self._give_back(ticket)
                    return None
                if time.monotonic() > deadline:
                    raise FarmError(self._why_not(boards, wait_s))
                time.sleep(POLL_S)
        except BaseException:
            self._give_back(ticket)
            raise

    def release(self, lease: "Lease") -> None:
        """Release a board; the next in the queue gets it."""
        with self._lock:
            self._owned.pop(lease.ticket, None)
        self._give_back(lease.ticket)

    def is_lost(self, lease: "Lease") -> bool:
        """Whether another client took the board because our heartbeat seemed to have stopped."""
        return lease.ticket in self._lost

    def leased(self) -> list[Mapping[str, Any]]:
        """Return all leases of live owners, by board."""
        return self._store.work(self._leases)

    def close(self) -> None:
        """Release everything and stop."""
        self._stop.set()
        if self._heart is not None:
            self._heart.join()
        mine = self.owner.owner

        def forget(connection: sql.Connection) -> None:
            for table in (LEASES, TICKETS):
                connection.execute(sql.delete(table).where(table.c.owner == mine))

        self._store.work(forget)

    def _try(
        self, connection: sql.Connection, ticket: str, boards: Sequence[str], priority: int
    ) -> str | None:
        """Return the board assigned to the ticket; None if it must wait."""
        leased = {row["board"]: row for row in self._leases(connection)}
        for board, row in leased.items():
            if row["ticket"] == ticket:  # a commit that seemed lost had succeeded
                return str(board)
        tickets = self._sweep(connection, TICKETS)
        if all(row["ticket"] != ticket for row in tickets):
            row = {**self.owner.columns(), "since": now(), "beat": 0, "ticket": ticket}
            row |= {"boards": list(boards), "priority": priority}
            connection.execute(sql.insert(TICKETS), row)
            tickets = self._rows(connection, TICKETS)
        taken = {*leased, *connection.execute(sql.select(QUARANTINE.c.board)).scalars()}
        for row in sorted(tickets, key=lambda row: (-row["priority"], row["id"])):
            free = next((board for board in row["boards"] if board not in taken), None)
            if row["ticket"] == ticket:
                return None if free is None else self._take(connection, row, free)
            if free is not None:
                taken.add(free)
        return None

    def _take(self, connection: sql.Connection, row: Mapping[str, Any], board: str) -> str:
        values = {**self.owner.columns(), "since": now(), "beat": 0}
        connection.execute(sql.insert(LEASES), {**values, "board": board, "ticket": row["ticket"]})
        connection.execute(sql.delete(TICKETS).where(TICKETS.c.ticket == row["ticket"]))
        return board

    def _leases(self, connection: sql.Connection) -> list[Mapping[str, Any]]:
        return self._sweep(connection, LEASES)

    def _sweep(self, connection: sql.Connection, table: sql.Table) -> list[Mapping[str, Any]]:
        """Delete the entries of dead owners; return the others."""
        rows = self._rows(connection, table)
        gone = {row["owner"] for row in rows if self._watch.is_gone(row)}
        if gone:
            connection.execute(sql.delete(table).where(table.c.owner.in_(sorted(gone))))
        return [row for row in rows if row["owner"] not in gone]

    @staticmethod
    def _rows(connection: sql.Connection, table: sql.Table) -> list[Mapping[str, Any]]:
        return [dict(row) for row in connection.execute(sql.select(table)).mappings()]

    def _give_back(self, ticket: str) -> None:
        def forget(connection: sql.Connection) -> None:
            for table in (LEASES, TICKETS):
                connection.execute(sql.delete(table).where(table.c.ticket == ticket))

        self._store.work(forget)

    def _why_not(self, boards: Sequence[str], wait_s: float) -> str:
        holders = {row["board"]: f"leased to {row['label']}" for row in self.leased()}
        reasons = self._store.work(
            lambda c: {row.board: f"in quarantine: {row.reason}" for row in c.execute(
                sql.select(QUARANTINE)
            )}
        )  # fmt: skip
        states = {**holders, **reasons}
        text = "; ".join(f"{board} is {states.get(board, 'wanted by others')}" for board in boards)
        return f"no board within {wait_s:g} s: {text}"

    def _start_heart(self) -> None:
        with self._lock:
            if self._heart is None:
                self._heart = threading.Thread(target=self._beat, daemon=True)
                self._heart.start()

    def _beat(self) -> None:
        """Increment the heartbeats of all our rows; detect leases that others have removed."""
        mine = self.owner.owner
        while not self._stop.wait(self._beat_s):
            with self._lock:
                owned = dict(self._owned)
            with contextlib.suppress(FarmError):  # database unavailable: the next beat tries again
                there = self._store.work(lambda c: _count_up(c, mine))
                self._lost |= {ticket for ticket in owned if ticket not in there}


class Lease:
    """The right to use one board."""

    def __init__(self, board: str, ticket: str, leases: Leases) -> None:
        self.board = board
        self.ticket = ticket
        self._leases = leases

    @property
    def lost(self) -> bool:
        """Whether the board was leased to another client meanwhile."""
        return self._leases.is_lost(self)


def _count_up(connection: sql.Connection, owner: str) -> set[str]:
    """Increment the heartbeats of an owner; return the tickets of its leases."""
    for table in (LEASES, TICKETS, ATTEMPTS):
        mine = sql.update(table).where(table.c.owner == owner)
        connection.execute(mine.values(beat=table.c.beat + 1))
    tickets = sql.select(LEASES.c.ticket).where(LEASES.c.owner == owner)
    return set(connection.execute(tickets).scalars())
