"""The jobs that all engines of the paper's cells train alike, each with PyTorch's numbers."""

import shutil
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pockengine.farm.bench.case import Case, make_case, train_in_torch
from pockengine.farm.bench.paper.cells import Cell, paper_scheme
from pockengine.farm.references.job import JobData, write_job

STEPS = 2
"""Of a job, whose losses are compared."""


@dataclass(frozen=True)
class PreparedJob:
    """A case with one scheme's data, the folder that it is written to, and PyTorch's results."""

    case: Case
    scheme: str
    data: JobData
    folder: Path
    losses: list[float]
    tensors: dict[str, np.ndarray]


class PaperJobs:
    """Creates each job once, and drops it when its last cell is done. Threads may share it."""

    def __init__(self, cells: Sequence[Cell], folder: Path) -> None:
        """Count how many cells need each job."""
        self.folder = folder
        self._uses = Counter(cell.job for cell in cells)
        self._cases: dict[tuple[str, int], Case] = {}
        self._jobs: dict[tuple[str, int, str], PreparedJob] = {}
        self._lock = threading.Lock()  # of PyTorch too, whose random state is one

    def prepare(self, cell: Cell) -> PreparedJob:
        """Return a cell's job, created on first use."""
        with self._lock:
            if cell.job not in self._jobs:
                self._jobs[cell.job] = self._prepare(cell)
            return self._jobs[cell.job]

    def release(self, cell: Cell) -> None:
        """Forget a job that no other cell needs."""
        with self._lock:
            self._uses[cell.job] -= 1
            if self._uses[cell.job] > 0:
                return
            job = self._jobs.pop(cell.job, None)
            if job is not None:
                shutil.rmtree(job.folder, ignore_errors=True)
            if not any(
                count for (*case, _), count in self._uses.items() if case == [*cell.job[:2]]
            ):
                self._cases.pop(cell.job[:2], None)

    def _prepare(self, cell: Cell) -> PreparedJob:
        key = cell.job[:2]
        if key not in self._cases:
            self._cases[key] = make_case(cell.model, cell.batch, STEPS, plain=True)
        case = self._cases[key]
        scheme = paper_scheme(cell.scheme, cell.model)
        data = case.for_scheme(scheme)
        losses, tensors = train_in_torch(data)
        folder = self.folder / f"{cell.model}-{cell.batch}-{cell.scheme}"
        write_job(folder, data)
        return PreparedJob(case, scheme, data, folder=folder, losses=losses, tensors=tensors)
