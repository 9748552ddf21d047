"""A board with a drive survives power cuts: its training resumes from the last checkpoint."""

from pathlib import Path

from pockengine.tests.farm.helpers import needs_qemu
from pockengine.tests.farm.transports.power_cuts import cut_power


@needs_qemu
def test_power_cuts_lose_and_tear_no_checkpoint(tmp_path: Path) -> None:
    outcome = cut_power(tmp_path, count=3, seed=1)

    assert outcome.saved > 0
    assert (outcome.lost, outcome.torn, outcome.different) == (0, 0, 0)
