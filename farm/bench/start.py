"""Time of our program from exec to its first trained step, and its memory."""

import json
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from pockengine.backends.artifact import Artifact
from pockengine.errors import JobFailed
from pockengine.farm.bench.run import train_arguments, write_rows
from pockengine.farm.references.job import JobData

STARTS = 5


@dataclass(frozen=True)
class Start:
    """Time from exec to the first step's end (PockEngine: the process's), and peak memory."""

    first_step_ms: float
    peak_rss_bytes: int


def measure_start(artifact: Artifact, data: JobData, threads: int, folder: Path) -> Start:
    """Run the artifact's program for one step several times: the median, and all steps' memory.

    Its files are read from the page cache. JobFailed when the program fails.
    """
    rows = folder / "rows.safetensors"
    write_rows(artifact, data, rows)
    one = replace(data, images=data.images[:1], labels=data.labels[:1])
    times = []
    for _ in range(STARTS):
        begin = time.perf_counter()
        _run(artifact, one, rows, threads)
        times.append(1e3 * (time.perf_counter() - begin))
    return Start(median(times), _run(artifact, data, rows, threads))


def _run(artifact: Artifact, data: JobData, rows: Path, threads: int) -> int:
    """Train; return the peak memory that the program reports."""
    arguments = train_arguments(data, str(artifact.weights), str(rows), threads)
    done = subprocess.run(
        [str(artifact.executable), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise JobFailed(f"{artifact.name}: {done.stderr.strip()[-500:]}")
    return int(json.loads(done.stdout.splitlines()[-1])["peak_rss_bytes"])
