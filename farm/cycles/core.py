"""Cores and boards of the cycle model, read from cores.toml and written for the plugin."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pockengine.devices import load_device
from pockengine.errors import FarmError

FILE = Path(__file__).with_name("cores.toml")
LINE_BYTES = 64
TABLES = ("pipes", "levels", "classes")


@dataclass(frozen=True)
class ModelledBoard:
    """A board with a cycle model: parameters of its core and its DRAM."""

    device: str
    core: str
    mhz: float
    lines: tuple[str, ...]
    """The plugin's input, see plugin/numbers.c."""

    def milliseconds(self, cycles: float) -> float:
        """Convert cycles to milliseconds."""
        return cycles / self.mhz / 1e3


@cache
def modelled_devices() -> tuple[str, ...]:
    """Return the devices that have a cycle model."""
    return tuple(_tables()["boards"])


@cache
def modelled_board(device: str) -> ModelledBoard:
    """Return a device's cycle model; FarmError if it has none."""
    tables = _tables()
    board = tables["boards"].get(device)
    if board is None:
        raise FarmError(
            f"no cycle model of {device}; there is one of {', '.join(tables['boards'])}"
        )
    mhz = load_device(device).cpu.mhz
    core = tables[board["core"]]
    lines = [f"{name} {value}" for name, value in core.items() if name not in TABLES]
    lines += [f"dram_latency {round(board['dram_ns'] * mhz / 1e3)}"]
    lines += [f"dram_line {round(LINE_BYTES * mhz / board['dram_gb_s'] / 1e3)}"]
    lines += [f"queue {entries}" for entries in core["pipes"].values()]
    lines += ["level " + " ".join(map(str, level)) for level in core["levels"]]
    pipes = {name: 1 << place for place, name in enumerate(core["pipes"])}
    lines += [_class_line(name, cost, pipes) for name, cost in core["classes"].items()]
    return ModelledBoard(device, board["core"], mhz, tuple(lines))


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text())


def _class_line(name: str, cost: Mapping[str, Any], pipes: Mapping[str, int]) -> str:
    masks = [sum(pipes[pipe] for pipe in cost.get(key, "").split()) for key in ("pipes", "also")]
    latency, slots, busy = cost["latency"], cost.get("slots", 1), cost.get("busy", 1)
    forward = cost.get("forward", latency)
    return f"class {name} {latency} {forward} {slots} {busy} {masks[0]} {masks[1]}"
