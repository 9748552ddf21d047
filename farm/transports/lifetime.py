"""Child processes that end when this process ends, for any reason."""

import os
from collections.abc import Iterable

# setpriv has the kernel kill the child when the thread that started it ends. The parent may have
# ended before that takes effect, so the shell first checks that its parent is still the same.
_STILL_OURS = '[ "$PPID" = "$0" ] && exec "$@"'


def ending_with_us(command: Iterable[str]) -> list[str]:
    """Return the command line (for Popen, without a shell) of a child that never outlives us.

    The kernel ends it with the thread that starts it: start it from one that lives long enough.
    Needs setpriv, of util-linux.
    """
    return ["setpriv", "--pdeathsig", "KILL", "sh", "-c", _STILL_OURS, str(os.getpid()), *command]
