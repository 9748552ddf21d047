"""Compare two programs on one board in turns: which is faster, by how much, how certainly.

Other load on the board affects both, so that the ratio of a round means more than any time. Each
turn is a separate run; its steps count once they are steady.
"""

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pockengine.errors import FarmError, JobFailed
from pockengine.farm.boards.conditions import Conditions, steady_from, watched
from pockengine.farm.jobs.job import Job, run_job
from pockengine.farm.results.noise import Interval, ratio_interval
from pockengine.farm.transports.transport import Transport
from pockengine.terminal import Say


@dataclass(frozen=True)
class Turns:
    """The median step of each round in ms, by program, and the conditions of the runs."""

    medians: Mapping[str, list[float]]
    conditions: Conditions

    def ratio(self, first: str, second: str) -> Interval:
        """Return the second's time over the first's, by rounds."""
        pairs = zip(self.medians[first], self.medians[second], strict=True)
        return ratio_interval([b / a for a, b in pairs], [1.0])


def take_turns(
    transport: Transport,
    jobs: Mapping[str, Job],
    rounds: int,
    folder: Path,
    say: Say = lambda text: None,
) -> Turns:
    """Run programs that print a line with "ns" for each step in turns, every other round reversed.

    `say` gets a line before each run.

    FarmError when there are not two; JobFailed when one fails or prints no step.
    """
    if len(jobs) < 2 or rounds < 1:
        raise FarmError("taking turns needs two programs and a round")
    medians: dict[str, list[float]] = {name: [] for name in jobs}
    with watched(transport) as conditions:
        for turn in range(rounds):
            for name in list(jobs)[:: 1 if turn % 2 == 0 else -1]:
                say(f"round {turn + 1} of {rounds}: {name}")
                medians[name].append(_median_step(transport, jobs[name], folder))
    return Turns(medians, conditions)


def _median_step(transport: Transport, job: Job, folder: Path) -> float:
    """Return the median of a run's steps in ms, without warm-up."""
    times = []
    for line in run_job(transport, job, folder).run.stdout.splitlines():
        try:
            values = json.loads(line)
        except ValueError:
            values = None
        if not isinstance(values, dict):
            raise JobFailed(f"{transport.board}: printed {line[:60]!r} instead of its report")
        if "ns" in values:
            times.append(float(values["ns"]) / 1e6)
    if not times:
        raise JobFailed(f"{transport.board}: {job.program.name} printed no step")
    return statistics.median(times[steady_from(times) or 0 :])
