"""Open and close a counted region from Python on aarch64, without a compiler or a library.

The two marks (see plugin/count.c) are single instructions, so they are written into an executable
page and called. Only for emulation: hardware would also need its instruction cache flushed.
"""

import ctypes
import mmap
import platform
import struct
from collections.abc import Callable

OPEN_MARK = 0xD5032C9F  # hint #100
CLOSE_MARK = 0xD5032CBF  # hint #101
RETURN = 0xD65F03C0
FUNCTION_BYTES = 8


class CallMarks:
    """The two marks as calls; the page that holds them lives as long as this object."""

    def __init__(self) -> None:
        """Write the marks into a page; OSError if this is not aarch64."""
        if platform.machine() != "aarch64":
            raise OSError(f"marks are aarch64 instructions; this is {platform.machine()}")
        rights = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        self._page = mmap.mmap(-1, mmap.PAGESIZE, prot=rights)
        self._page.write(struct.pack("<4I", OPEN_MARK, RETURN, CLOSE_MARK, RETURN))
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        prototype = ctypes.CFUNCTYPE(None)
        self.open: Callable[[], None] = prototype(address)
        self.close: Callable[[], None] = prototype(address + FUNCTION_BYTES)
