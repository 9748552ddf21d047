"""Calibration of the cycle model: public figures of real boards, and the held-out error."""

import statistics
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pockengine.errors import FarmError
from pockengine.tables import from_table

FILE = Path(__file__).with_name("calibration.toml")
HALVES = ("fit", "held-out")


@dataclass(frozen=True)
class Figure:
    """A time measured on a board, and the modelled time of the same work.

    `half` says whether the model was fitted to it. A memory figure has a `kernel`: letters of
    tests/farm/cycles/kernels.c, of which the last runs for 1 / `times` of the time. Other figures
    are of a `net` from references/detection_nets.py. `difference` names what differs between the
    two sides.
    """

    device: str
    what: str
    half: str
    measured_ms: float
    modelled_ms: float
    source: str
    kernel: str = ""
    net: str = ""
    times: float = 1.0
    difference: str = ""

    @property
    def error(self) -> float:
        """Relative error of the model; negative if it is too fast."""
        return self.modelled_ms / self.measured_ms - 1


@cache
def figures() -> tuple[Figure, ...]:
    """Return all figures, in the order of the file."""
    rows = tomllib.loads(FILE.read_text())["figure"]
    found = tuple(from_table(Figure, row) for row in rows)
    for figure in found:
        if figure.half not in HALVES:
            raise FarmError(f"{figure.what}: half {figure.half!r} is none of {', '.join(HALVES)}")
    return found


def net_figure(device: str, net: str) -> Figure:
    """Return the figure of a net on a device; FarmError if there is none."""
    known = {(x.device, x.net): x for x in figures() if x.net}
    if (device, net) not in known:
        listed = ", ".join(f"{name} on {board}" for board, name in known)
        raise FarmError(f"no public time of {net} on {device}; there are {listed}")
    return known[device, net]


def held_out_error(device: str) -> float | None:
    """Return the mean absolute error of a device's held-out nets; None if it has none."""
    nets = [x for x in figures() if x.device == device and x.half == "held-out" and not x.kernel]
    return statistics.mean(abs(net.error) for net in nets) if nets else None
