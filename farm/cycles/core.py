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
AARCH64, THUMB = "aarch64", "thumb"
"""Kinds of cores: programs that run under an operating system, and firmware."""
TABLES = ("kind", "pipes", "levels", "classes")
GROUPS = ("any", "first", "alone")


@dataclass(frozen=True)
class ModelledBoard:
    """A board with a cycle model: parameters of its core and its memory."""

    device: str
    core: str
    kind: str
    mhz: float
    lines: tuple[str, ...]
    """The plugin's input, see numbers.c in plugin/ and in the folder of its kind."""

    def milliseconds(self, cycles: float) -> float:
        """Convert cycles to milliseconds."""
        return cycles / self.mhz / 1e3


@cache
def modelled_devices(kind: str = AARCH64) -> tuple[str, ...]:
    """Return the devices of a kind that have a cycle model."""
    tables = _tables()
    return tuple(
        name for name, row in tables["boards"].items() if tables[row["core"]]["kind"] == kind
    )


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
    if core["kind"] == AARCH64:
        lines += _large(core, board, mhz)
    else:
        lines += [f"{name} {value}" for name, value in board.items() if name != "core"]
    pipes = {name: 1 << place for place, name in enumerate(core["pipes"])}
    class_line = _class_line if core["kind"] == AARCH64 else _grouped_line
    lines += [class_line(name, cost, pipes) for name, cost in core["classes"].items()]
    return ModelledBoard(device, board["core"], kind=core["kind"], mhz=mhz, lines=tuple(lines))


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text())


def _large(core: Mapping[str, Any], board: Mapping[str, Any], mhz: float) -> list[str]:
    """Return the lines of DRAM, issue queues and cache levels."""
    return [
        f"dram_latency {round(board['dram_ns'] * mhz / 1e3)}",
        f"dram_line {round(LINE_BYTES * mhz / board['dram_gb_s'] / 1e3)}",
        *(f"queue {entries}" for entries in core["pipes"].values()),
        *("level " + " ".join(map(str, level)) for level in core["levels"]),
    ]


def _masks(cost: Mapping[str, Any], pipes: Mapping[str, int]) -> list[int]:
    return [sum(pipes[pipe] for pipe in cost.get(key, "").split()) for key in ("pipes", "also")]


def _class_line(name: str, cost: Mapping[str, Any], pipes: Mapping[str, int]) -> str:
    masks = _masks(cost, pipes)
    latency, slots, busy = cost["latency"], cost.get("slots", 1), cost.get("busy", 1)
    forward = cost.get("forward", latency)
    return f"class {name} {latency} {forward} {slots} {busy} {masks[0]} {masks[1]}"


def _grouped_line(name: str, cost: Mapping[str, Any], pipes: Mapping[str, int]) -> str:
    masks = _masks(cost, pipes)
    group = GROUPS.index(cost.get("group", "any"))
    late, busy = cost.get("late", 0), cost.get("busy", 1)
    return f"class {name} {cost['latency']} {late} {busy} {masks[0]} {masks[1]} {group}"
