"""The cycle model on kernels with cycle counts from Arm's guides and public measurements."""

from pathlib import Path

import pytest

from pockengine.errors import FarmError
from pockengine.farm.cycles.calibration import Figure, figures
from pockengine.farm.cycles.core import modelled_board
from pockengine.farm.cycles.modelled import model_regions, read_cycles
from pockengine.tests.farm.guest_program import build_guest

SOURCE = Path(__file__).with_name("kernels.c")
ROUNDS = 1000
BOARDS = ("rpi4", "rpi5")
COMPUTE = "amil"
"""Kernels bound by computation. Each runs twice: the first run loads its code from memory."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_guest(SOURCE, tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="module")
def computed(program: str) -> dict[tuple[str, str], float]:
    """Return the cycles per round of each compute kernel, by board and letter."""
    found = {}
    for board in BOARDS:
        regions = model_regions(board, [program, COMPUTE * 2], marks=2 * len(COMPUTE))
        for letter, region in zip(COMPUTE, regions[len(COMPUTE) :], strict=True):
            found[board, letter] = region.cycles.total / ROUNDS
    return found


@pytest.mark.parametrize(
    ("board", "letter", "cycles"),
    [
        ("rpi4", "a", 4 * 3),  # accumulators are forwarded after 3 of the 7 cycles
        ("rpi5", "a", 4 * 2),  # 2 of 4
        ("rpi4", "m", 2 * 7),
        ("rpi5", "m", 2 * 4),
        ("rpi4", "i", 8),  # two pipes of 64 bits
        ("rpi5", "i", 8 / 2),  # two of 128 bits
        ("rpi4", "l", 4),
        ("rpi5", "l", 4 / 2),
    ],
)
def test_kernels_take_the_documented_cycles(
    computed: dict[tuple[str, str], float], board: str, letter: str, cycles: float
) -> None:
    assert computed[board, letter] == pytest.approx(cycles, rel=0.02)


@pytest.mark.parametrize(
    "figure", [x for x in figures() if x.kernel], ids=lambda x: f"{x.device}-{x.kernel}"
)
def test_memory_kernels_take_the_recorded_and_measured_time(program: str, figure: Figure) -> None:
    region = model_regions(figure.device, [program, figure.kernel])[-1]

    assert region.milliseconds * figure.times == pytest.approx(figure.modelled_ms, rel=0.01)


def test_copy_waits_for_memory(program: str) -> None:
    _, region = model_regions("rpi4", [program, "cc"], marks=2)

    assert region.cycles.dram > 0.8 * region.cycles.total


def test_random_branches_cost_half_a_penalty_each(program: str) -> None:
    _, region = model_regions("rpi4", [program, "uu"], marks=2)

    wrong = region.cycles.branch / ROUNDS
    assert 15 / 2 <= wrong <= 25 / 2
    assert region.instructions == pytest.approx(6.5 * ROUNDS, rel=0.05)


def test_boards_without_a_model_are_refused() -> None:
    with pytest.raises(FarmError, match=r"no cycle model of host; there is one of rpi4, rpi5"):
        modelled_board("host")


def test_damaged_reports_are_refused() -> None:
    with pytest.raises(FarmError, match="damaged"):
        read_cycles(["cycles 1 2 x 4 5"])
