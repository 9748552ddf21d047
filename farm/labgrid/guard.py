"""Release the places of a dead client: a small process that briefly outlives it.

labgrid keeps a place acquired until it is released, even if the client was killed, and reserved for
another minute. This process reads lines "+RESERVATION PLACE" and "-RESERVATION PLACE" from the
client; at their end, for any reason, it releases the places that the client still has.
"""

import subprocess
import sys
from pathlib import Path

from pockengine.errors import FarmError
from pockengine.farm.labgrid.session import LabgridSession


class Guard:
    """The client's side: reports the acquired places to the process."""

    def __init__(self, address: str, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).absolute()), address, name, *sys.path],
            stdin=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,  # ignore the client's Ctrl-C
        )

    def hold(self, place: str, reservation: str) -> None:
        """Register a place for release when the client ends."""
        self._say(f"+{reservation} {place}\n")

    def forget(self, place: str, reservation: str) -> None:
        """Unregister a place."""
        self._say(f"-{reservation} {place}\n")

    def close(self) -> None:
        """End it; acquired places are released."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)


def watch(address: str, name: str) -> None:
    """Read lines until they end, then release the places acquired as `name`."""
    owned: set[str] = set()
    for line in sys.stdin:
        if line[0] == "+":
            owned.add(line[1:].rstrip("\n"))
        else:
            owned.discard(line[1:].rstrip("\n"))
    if not owned:
        return
    session = LabgridSession(address, *name.split("/", 1))
    messages = session.messages
    for line in owned:
        token, place = line.split(" ", 1)
        release = messages.ReleasePlaceRequest(placename=place, fromuser=name)
        cancel = messages.CancelReservationRequest(token=token)
        for method, request in (("ReleasePlace", release), ("CancelReservation", cancel)):
            try:
                session.call(method, request)
            except FarmError as error:
                print(f"{place}: {error}", file=sys.stderr)
    session.close()


if __name__ == "__main__":
    sys.path[:] = sys.argv[3:]
    watch(sys.argv[1], sys.argv[2])
