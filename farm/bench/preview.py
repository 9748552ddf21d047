"""The first lines of a bench: the plan, the measure, and the estimated time."""

from pockengine.farm.bench.counting import counts
from pockengine.farm.bench.result import F32, BenchOptions
from pockengine.farm.bench.room import how_to_train
from pockengine.farm.bench.schemes import name_of
from pockengine.farm.boards.board import Local

START_S, BOOT_S = 20.0, 25.0
SCHEME_S, STEP_S = 25.0, 0.5
REFERENCE_S = 150.0
"""Seconds of a scheme in a framework's aarch64 Python, without its first installation."""


def first_lines(options: BenchOptions) -> list[str]:
    """Return what a bench does with each scheme, and an estimate for an idle machine."""
    ways = how_to_train(options)
    names = ", ".join(
        name_of(scheme) + ("" if dtype == F32 else f" {dtype}") for scheme, dtype in ways
    )
    board = options.board
    emulated = " (emulated)" if board.emulated else ""
    measure = "counts its instructions" if counts(board) else "times its steps"
    return [
        f"{options.model}, batch {options.batch}, on {board.name}{emulated}: {names}.",
        f"Each compiles, trains {options.steps} steps there, is compared with PyTorch, and then "
        f"{measure}; about {_minutes(seconds(options, len(ways)))} on an idle machine.",
    ]


def seconds(options: BenchOptions, ways: int) -> float:
    """Estimate a bench's time, without first installations and builds."""
    boot = 0.0 if isinstance(options.board.place, Local) else BOOT_S
    references = len(options.references) * REFERENCE_S
    return START_S + boot + ways * (SCHEME_S + options.steps * STEP_S + references)


def _minutes(duration: float) -> str:
    return f"{max(1, round(duration / 60))} min"
