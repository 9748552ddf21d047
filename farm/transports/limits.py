"""Limits of a command on a board: output, memory, file size.

Time is the caller's `timeout_s`. Memory and file size are the shell's own limits, set on the board
before the command starts, so that they apply even if the connection is lost.
"""

from dataclasses import dataclass

OUTPUT_BYTES = 64 << 20  # of each stream; more is a runaway program

# 90 % of the free memory of the board: the remainder keeps the system responsive when a job reaches
# its limit. Without /proc there is no limit.
_FREE_MEMORY = "$({ awk '/^MemAvailable/ { print int($2 * 0.9) }' /proc/meminfo; } 2>/dev/null)"
_FREE_DISK = "$({ df -P -k . | awk 'NR == 2 { print int($4 * 1.8) }'; } 2>/dev/null)"


@dataclass(frozen=True)
class CommandLimits:
    """Limits of one command; None is no limit, or with `within_free` the free amount."""

    output_bytes: int = OUTPUT_BYTES
    memory_bytes: int | None = None  # of address space, each process
    file_bytes: int | None = None  # of each file that it writes
    within_free: bool = False

    def shell(self) -> str:
        """Return shell text that sets the limits for commands started by the same shell.

        It contains only numbers and constants, no user input.
        """
        memory = _value(self.memory_bytes, 1024, _FREE_MEMORY if self.within_free else "")
        file = _value(self.file_bytes, 512, _FREE_DISK if self.within_free else "")
        return "".join(
            f'limit={value}; [ -z "$limit" ] || ulimit {option} "$limit" 2>/dev/null; '
            for option, value in (("-v", memory), ("-f", file))
            if value
        )


def _value(size: int | None, unit: int, free: str) -> str:
    return free if size is None else str(max(1, size // unit))


NO_LIMITS = CommandLimits()
