"""Boards from labgrid: its places are the boards, its reservations the queue.

A place is used if the inventory has a board of the same name: an SSH board with login and pinned
host key, or an adb phone. Its NetworkService gives the current address. The coordinator itself is
not trusted.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any

from pockengine.errors import FarmError
from pockengine.farm.boards.board import AdbPhone, Board, Remote
from pockengine.farm.jobs.leases import WAIT_S
from pockengine.farm.jobs.owner import Owner
from pockengine.farm.labgrid.guard import Guard
from pockengine.farm.labgrid.session import LabgridSession, coordinator_of

POLL_S = 0.5
ADB_PORT = 5555
"""Where `adb tcpip` listens by custom."""
HOST = re.compile(r"[\w:][\w.:%-]{0,254}", re.ASCII)  # names, IPv4 and IPv6
PORT = re.compile(r"[0-9]{1,5}")
TOKEN = re.compile(r"[\w-]{1,99}", re.ASCII)
WAITING, ALLOCATED, ACQUIRED = 0, 1, 2  # labgrid's ReservationState


@dataclass
class PlaceLease:
    """An acquired place; `lost` once labgrid shows another owner."""

    board: str
    reservation: str
    pool: "LabgridPool"

    @property
    def lost(self) -> bool:
        """Whether the place was taken from us."""
        place = self.pool.session.places.get(self.board)
        return place is None or place.acquired != self.pool.session.name


class LabgridPool:
    """A client of a coordinator, with the interface of Leases."""

    def __init__(self, url: str, owner: Owner | None = None) -> None:
        """Connect to labgrid://host:port."""
        owner = owner or Owner.here()
        address = coordinator_of(url)
        host = owner.host.partition("/")[0]
        user = f"pockengine-{owner.pid}-{token_hex(4)}"
        self.session = LabgridSession(address, host, user)
        self._guard = Guard(address, self.session.name)

    def boards(self, inventory: Sequence[Board]) -> list[Board]:
        """Return the inventory's boards that are places, with their current addresses.

        FarmError if there is none.
        """
        known = {board.name: board for board in inventory if board.on_shelf}
        places = self.session.places
        found = []
        for name in sorted(set(known) & set(places)):
            service = self.session.service(places[name])
            if service is not None:
                found.append(_placed(known[name], service))
        if not found:
            strangers = ", ".join(sorted(places)) or "none"
            raise FarmError(
                f"no place of the coordinator is a board of the inventory; its places: "
                f"{strangers}; add one with: farm add ssh://user@host --name PLACE"
            )
        return found

    def acquire(
        self,
        boards: Sequence[str],
        priority: int = 0,
        wait_s: float = WAIT_S,
        stop: Callable[[], bool] = lambda: False,
    ) -> PlaceLease | None:
        """Wait for the board in labgrid's queue and acquire its place; None if `stop` is set.

        Labgrid reserves by tags: only one board can be waited for at a time.
        """
        if len(boards) != 1:
            raise FarmError("a reservation of labgrid is for one place; ask for boards one by one")
        (board,) = boards
        token = self._reserve(board, priority)
        self._guard.hold(board, token)
        deadline = time.monotonic() + wait_s
        try:
            while self._state(token) == WAITING:
                if stop():
                    self._give_up(board, token)
                    return None
                if time.monotonic() > deadline:
                    raise FarmError(f"no board within {wait_s:g} s: {self._why_not(board)}")
                time.sleep(POLL_S)
            request = self.session.messages.AcquirePlaceRequest(placename=board)
            self.session.call("AcquirePlace", request)
        except BaseException:
            self._give_up(board, token)
            raise
        return PlaceLease(board, token, self)

    def release(self, lease: PlaceLease) -> None:
        """Release a place unless another client has acquired it."""
        request = self.session.messages.ReleasePlaceRequest(
            placename=lease.board, fromuser=self.session.name
        )
        self.session.call("ReleasePlace", request)
        self._give_up(lease.board, lease.reservation)

    def close(self) -> None:
        """Release acquired places and disconnect."""
        self.session.close()
        self._guard.close()

    def _reserve(self, board: str, priority: int) -> str:
        messages = self.session.messages
        name_filter = messages.Reservation.Filter(filter={"name": board})
        request = messages.CreateReservationRequest(
            filters={"main": name_filter}, prio=float(priority)
        )
        token = str(self.session.call("CreateReservation", request).reservation.token)
        if not TOKEN.fullmatch(token):  # the guard reads it as part of a line
            raise FarmError(f"labgrid's coordinator calls a reservation {token[:99]!r}")
        return token

    def _state(self, token: str) -> int:
        """Return a reservation's state; the query keeps it alive."""
        request = self.session.messages.PollReservationRequest(token=token)
        return int(self.session.call("PollReservation", request).reservation.state)

    def _give_up(self, board: str, token: str) -> None:
        """Cancel a reservation; one that has expired is not an error."""
        request = self.session.messages.CancelReservationRequest(token=token)
        with suppress(FarmError):
            self.session.call("CancelReservation", request)
        self._guard.forget(board, token)

    def _why_not(self, board: str) -> str:
        place = self.session.places.get(board)
        if place is None:
            return f"labgrid has no place {board}"
        return f"{board} is acquired by {place.acquired or 'no one; it is reserved for others'}"


def _placed(board: Board, service: Mapping[str, Any]) -> Board:
    """Return a board with its place's address; login and folder come from the inventory."""
    usual = ADB_PORT if isinstance(board.place, AdbPhone) else 22
    host, port = str(service.get("address") or ""), str(service.get("port", usual))
    if not HOST.fullmatch(host) or not PORT.fullmatch(port) or not 0 < int(port) < 1 << 16:
        raise FarmError(
            f"{board.name}: labgrid says that it is at {host[:99]!r}, port {port[:99]!r}; its "
            "exporter's NetworkService needs the address of a host, and a port or none"
        )
    if isinstance(board.place, AdbPhone):
        name = f"[{host}]" if ":" in host else host
        return replace(board, place=replace(board.place, serial=f"{name}:{port}"))
    assert isinstance(board.place, Remote)
    return replace(board, place=replace(board.place, host=host, port=int(port)))
