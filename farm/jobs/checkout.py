"""Open a board for one piece of work: wait for its lease first where others might have it too."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from pockengine.farm.boards.board import Board, Remote
from pockengine.farm.boards.connect import connect
from pockengine.farm.jobs.leases import Leases
from pockengine.farm.jobs.store import Store
from pockengine.farm.transports.transport import Transport


@contextmanager
def checkout(board: Board, database: str | None = None) -> Iterator[Transport]:
    """Yield an open transport to a board that is ours alone meanwhile.

    An emulated board is started for us, and this machine is everybody's: only a machine on a shelf
    is leased. FarmError when it is in quarantine, or does not come free.
    """
    if not isinstance(board.place, Remote):
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
