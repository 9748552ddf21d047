"""The paper's cells on this machine: engines of one job in a process each, timed in turn."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

from pockengine.errors import PockEngineError
from pockengine.farm.bench.paper.cells import OURS, Cell, PaperPlan
from pockengine.farm.bench.paper.emulated import Fail, Keep
from pockengine.farm.bench.paper.jobs import PaperJobs, PreparedJob
from pockengine.farm.bench.paper.outcome import CellOutcome
from pockengine.farm.bench.running import (
    Line,
    Running,
    SchemeJob,
    start_ours,
    start_peer,
    take_turns,
)
from pockengine.farm.references.worker import TrainingResult
from pockengine.options import CompileOptions

METRIC = "step_ms"


class HostBench:
    """Measures a plan's cells on this machine; outcomes and failures are reported as they come."""

    def __init__(self, plan: PaperPlan, folder: Path, threads: int, rounds: int) -> None:
        """Take the plan and a folder for its files."""
        self.plan, self.folder, self.threads, self.rounds = plan, folder, threads, rounds
        self.jobs = PaperJobs(plan.cells, folder / "jobs")

    def run(self, keep: Keep, fail: Fail, tell: Callable[[str], None] = lambda _: None) -> None:
        """Measure job by job; the engines of one take turns."""
        for _, group in groupby(self.plan.cells, key=lambda cell: cell.job):
            cells = list(group)
            try:
                job = self.jobs.prepare(cells[0])
                for cell, outcome in self._measured(cells, job, fail, tell):
                    keep(cell, outcome)
            except PockEngineError as error:
                for cell in cells:
                    fail(cell, str(error))
            finally:
                for cell in cells:
                    self.jobs.release(cell)

    def _measured(
        self, cells: Sequence[Cell], job: PreparedJob, fail: Fail, tell: Callable[[str], None]
    ) -> list[tuple[Cell, CellOutcome]]:
        expected = TrainingResult(job.losses, dict(job.tensors))
        task = SchemeJob(
            cells[0].scheme, job.data, job.folder, threads=self.threads, expected=expected
        )
        runs: dict[Cell, Running] = {}
        sizes = {}
        with ExitStack() as stack:
            for cell in cells:
                try:
                    if cell.engine == OURS:
                        place = self.folder / "ours" / job.folder.name
                        compiled = job.case.compile(CompileOptions(scheme=job.scheme), place)
                        artifact = compiled.artifact
                        runs[cell] = start_ours(task, artifact, stack)
                        sizes[cell] = artifact.arena_bytes, artifact.executable.stat().st_size
                    else:
                        runs[cell] = start_peer(task, cell.engine, stack)
                except PockEngineError as error:
                    fail(cell, str(error))
            if not runs:
                return []
            lines = take_turns(list(runs.values()), self.rounds, tell)
        return [
            (cell, _outcome(line, *sizes.get(cell, (0, 0))))
            for cell, line in zip(runs, lines, strict=True)
        ]


def _outcome(line: Line, arena: int, binary: int) -> CellOutcome:
    values = line.timing.values or (line.timing.median,)
    figures = (line.max_rel_error, arena, binary, line.peak_rss_bytes)
    return CellOutcome(line.version, METRIC, values, *figures)
