"""Open a board exclusively, waiting for its lease if others share it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from pockengine.farm.boards.board import Board
from pockengine.farm.boards.connect import connect
from pockengine.farm.jobs.leases import Leases
from pockengine.farm.jobs.store import Store
from pockengine.farm.transports.transport import Transport


@contextmanager
def checkout(board: Board, database: str | None = None) -> Iterator[Transport]:
    """Yield an open transport to a board, for exclusive use.

    Only physical boards are leased: each client starts its own emulated board, and this machine is
    shared. FarmError if the board is in quarantine, or does not become free.
    """
    if not board.on_shelf:
        with connect(board) as transport:
            yield transport
        return
    with (
        closing(Store(database)) as store,
        closing(Leases(store)) as leases,
        leases.lease([board.name]),
        connect(board) as transport,
    ):
        yield transport
