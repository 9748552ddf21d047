"""The order in which the emulation runs an artifact's items and groups."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from pockengine.backends.artifact import Artifact

FORWARD, BACKWARD, SHUFFLED = 0, 1, 12345
ORDERS = FORWARD, BACKWARD, SHUFFLED


@contextmanager
def ordered(artifact: Artifact, order: int) -> Iterator[None]:
    """Run them in this order within the block, and forward again afterwards."""
    assert artifact.library is not None
    library = ctypes.CDLL(str(artifact.library))
    library.pe_gpu_set_order(order)
    try:
        yield
    finally:
        library.pe_gpu_set_order(FORWARD)
