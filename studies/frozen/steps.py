"""Interleaved CPU times of a training step of several artifacts, on one thread."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from pockengine import load
from pockengine.backends.registry import open_session
from pockengine.studies.turns import Spread, step_times


def cpu_times(artifacts: Sequence[Path], batch: Mapping[str, np.ndarray]) -> list[Spread]:
    """Return the time of each artifact's step on a batch; one round warms up.

    CPU time instead of wall time is less affected by other work on the machine.
    """
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(open_session(load(folder).artifact, threads=1))
            for folder in artifacts
        ]
        return step_times(sessions, batch, time.process_time)
