"""Which option of the bench applies to which kind of run; others are refused by name."""

from collections.abc import Iterable, Mapping
from typing import Any

from pockengine.errors import FarmError
from pockengine.farm.bench.schemes import GENERATION, GPU, LLM, PAPER, PEERS, RUNTIMES
from pockengine.farm.boards.board import Board

RUN, RUN_EMULATED = "a run without --suite", "a run on an emulated board without --suite"
PEERS_BOARD, RUNTIMES_BOARD = f"--suite={PEERS} on a board", f"--suite={RUNTIMES} on a board"
PEERS_HOST, RUNTIMES_HOST = (
    f"--suite={PEERS} on this machine",
    f"--suite={RUNTIMES} on this machine",
)
LLM_HOST, GPU_BOARD, PAPER_BOTH = f"--suite={LLM}", f"--suite={GPU}", f"--suite={PAPER}"
GENERATION_HOST = f"--suite={GENERATION}"
HOST_SUITES = (PEERS_HOST, RUNTIMES_HOST, LLM_HOST)
RUNS = (RUN, RUN_EMULATED)
BOARD_RUNS = (*RUNS, PEERS_BOARD, RUNTIMES_BOARD, GPU_BOARD)

APPLIES: Mapping[str, tuple[str, ...]] = {
    "steps": (*BOARD_RUNS, LLM_HOST),
    "schemes": (*BOARD_RUNS, *HOST_SUITES, PAPER_BOTH),
    "batches": (*BOARD_RUNS, *HOST_SUITES, PAPER_BOTH),
    "references": (RUN_EMULATED,),
    "lengths": (LLM_HOST, GENERATION_HOST),
    "storages": (GENERATION_HOST,),
    "engines": (*HOST_SUITES, PAPER_BOTH),
    "pythons": (RUNTIMES_HOST, RUNTIMES_BOARD),
    "quick": (*HOST_SUITES, GENERATION_HOST, PAPER_BOTH),
    "resume": (PEERS_HOST, PAPER_BOTH),
    "bf16": (PEERS_HOST,),
    "tuned": (PEERS_HOST,),
    "int8": (*RUNS, PEERS_BOARD, RUNTIMES_BOARD),
    "backend": RUNS,
    "report": (PEERS_HOST, PAPER_BOTH),
    "joined": (PAPER_BOTH,),
    "baseline": BOARD_RUNS,
    "out": BOARD_RUNS,
}
"""Options by the kinds of run that read them; those that are not named are read by all."""

FLAGS = {
    "references": "reference",
    "lengths": "tokens",
    "storages": "frozen-weights",
    "schemes": "scheme",
    "batches": "batch",
    "engines": "engine",
    "pythons": "python",
    "joined": "records",
}
"""Of options whose name on the command line is another."""

NEEDS = {"resume": "json_file", "out": "baseline"}
"""Options that mean nothing without another."""


def kind_of(suite: str | None, emulated: bool) -> str:
    """Return which kind of run a suite on a board is."""
    by_place = {
        None: RUNS,
        PEERS: (PEERS_HOST, PEERS_BOARD),
        RUNTIMES: (RUNTIMES_HOST, RUNTIMES_BOARD),
        LLM: (LLM_HOST, LLM_HOST),
        GENERATION: (GENERATION_HOST, GENERATION_HOST),
        GPU: (GPU_BOARD, GPU_BOARD),
        PAPER: (PAPER_BOTH, PAPER_BOTH),
    }
    return by_place[suite][emulated]


def check_options(named: Mapping[str, Any], suite: str | None, boards: Iterable[Board]) -> None:
    """Refuse an option that no chosen board's run reads, or whose partner is missing.

    `named` are the options that the user named, by parameter. FarmError names the option.
    """
    kinds = {kind_of(suite, board.emulated) for board in boards}
    for name in named:
        applies = APPLIES.get(name)
        if applies is not None and not kinds & set(applies):
            raise FarmError(
                f"{flag(name)} does not go with {' and '.join(sorted(kinds))}; it is for "
                f"{', '.join(applies)}"
            )
        if name in NEEDS and NEEDS[name] not in named:
            raise FarmError(f"{flag(name)} needs {flag(NEEDS[name])}")


def flag(name: str) -> str:
    """Return an option's name on the command line."""
    return f"--{FLAGS.get(name, name).removesuffix('_file').replace('_', '-')}"
