"""One emulated board for the whole run. It boots in seconds, and every test leaves it clean."""

from collections.abc import Iterator

import pytest

from pockengine.farm.boards.board import BUILT_IN, board_for, load_boards
from pockengine.farm.boards.connect import connect
from pockengine.farm.transports.transport import Transport


@pytest.fixture(scope="session")
def rpi4() -> Iterator[Transport]:
    """Boot the default rpi4; only tests marked `needs_qemu` may use it."""
    with connect(board_for("rpi4", load_boards([BUILT_IN]))) as transport:
        yield transport
