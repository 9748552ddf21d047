"""Compare with MobileFineTuner: a training step of decoders, on one core.

    git clone https://github.com/Edge-Intelligence-Lab/MobileFineTuner DIR
    git -C DIR checkout b62d3b1
    git -C DIR checkout 90e2df1 -- operator/finetune_ops/data  # missing from b62d3b1
    cmake -S DIR/examples/EXAMPLE -B DIR/examples/EXAMPLE/build -DCMAKE_BUILD_TYPE=Release
    cmake --build DIR/examples/EXAMPLE/build
    bazel run //studies/mobile_finetuner -- --source DIR --build build

EXAMPLE is one of `cases.py`; a second build folder, with `-DUSE_BLAS=ON`, is another `--build`.
Weights are random, and rows form one batch. Times are user CPU seconds; system time is excluded,
because reading 4 GB of weights takes 21 to 46 s of it. Theirs is the time of a longer training
minus that of one step. Memory is peak resident memory; ours is that of the program for a device.
The first losses must be equal.
"""

import json
import os
import re
import resource
import statistics
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
from rich.table import Table
from safetensors.numpy import save_file

from pockengine import Adam, Compiled, PockEngineError, compile
from pockengine.errors import JobFailed
from pockengine.models.causal_lm import open_causal_lm
from pockengine.studies.mobile_finetuner.cases import CASES, RATE, Case, write
from pockengine.terminal import PlainConsole

STEPS = 3
TOLERANCE = 1e-4
MIB = 2**20
LOSS = re.compile(r"[Ll]oss[ =](\d+\.\d+)")
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

Feed = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class CaseRow:
    """CPU seconds of a step, peak resident memory, and the loss of the first step."""

    case: str
    engine: str
    seconds: float
    peak_bytes: int
    loss: float


def measure_theirs(
    case: Case, source: Path, build: str, folder: Path, tokens: int
) -> tuple[float, int, float]:
    """Return CPU seconds of a step, bytes and the first loss; JobFailed with their last output."""
    first = _trained(case.command(source, build, folder, tokens, 1))
    more = _trained(case.command(source, build, folder, tokens, 1 + STEPS))
    return (more[0] - first[0]) / STEPS, more[1], more[2]


def _trained(command: list[str]) -> tuple[float, int, float]:
    """Run to the end; return the CPU seconds, the peak resident bytes and the first loss."""
    with TemporaryDirectory() as place, Path(place, "log").open("w+") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **ONE_THREAD})
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        words = log.read()
    losses = LOSS.findall(words)
    if child.returncode or not losses:
        raise JobFailed(f"{command[0]} ended with {child.returncode}: {words[-500:]}")
    return usage.ru_utime, 1024 * usage.ru_maxrss, float(losses[0])


def measure_ours(compiled: Compiled, feed: Feed, folder: Path) -> tuple[float, int, float]:
    """Return CPU seconds of a step, bytes and the first loss."""
    losses, times = [], []
    with compiled.session(1) as session:
        for _ in range(1 + STEPS):
            start = _own_seconds()
            losses.append(float(session.train_step(feed, RATE)["loss"]))
            times.append(_own_seconds() - start)
    return (
        statistics.median(times[1:]),
        _peak(compiled, feed, folder / "feed.safetensors"),
        losses[0],
    )


def _own_seconds() -> float:
    """Return the user CPU seconds of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def _peak(compiled: Compiled, feed: Feed, data: Path) -> int:
    """Return the peak resident memory of the program for a device."""
    save_file({name: np.concatenate([array, array]) for name, array in feed.items()}, data)
    artifact = compiled.artifact
    command = [str(artifact.executable), "train", "--weights", str(artifact.weights)]
    command += ["--data", str(data), "--steps", "2", "--lr", str(RATE), "--threads", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise JobFailed(f"{artifact.name}: {done.stderr[-500:]}")
    return int(json.loads(done.stdout.splitlines()[-1])["peak_rss_bytes"])


def require_built(cases: Iterable[Case], source: Path, builds: tuple[str, ...]) -> None:
    """Raise JobFailed if a program of theirs is missing."""
    for program in (case.program(source, build) for case in cases for build in builds):
        if not program.exists():
            raise JobFailed(f"{program} is not there; build the example, or name its --build")


def compare(
    case: Case, source: Path, builds: tuple[str, ...], tokens: int, rounds: int
) -> list[CaseRow]:
    """Measure ours and each build of theirs in turns; JobFailed if first losses differ."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        row = write(case, folder, tokens)
        graph = open_causal_lm(folder).graph(1, tokens)
        made = compile(
            graph, None, scheme=case.scheme, optimizer=Adam(), folder=folder / "artifact"
        )
        feed = _feed(made, row)
        found: dict[str, list[tuple[float, int, float]]] = {}
        for _ in range(rounds):
            found.setdefault("pockengine", []).append(measure_ours(made, feed, folder))
            for build in builds:
                theirs = measure_theirs(case, source, build, folder, tokens)
                found.setdefault(f"MobileFineTuner, {build}", []).append(theirs)
    ours = found["pockengine"][0][2]
    for engine, runs in found.items():
        if case.row and abs(runs[0][2] - ours) > TOLERANCE * ours:
            raise JobFailed(f"{case.name}: {engine} has a first loss of {runs[0][2]}, ours {ours}")
    return [
        CaseRow(
            case.name, engine, statistics.median(run[0] for run in runs), runs[0][1], runs[0][2]
        )
        for engine, runs in found.items()
    ]


def _feed(compiled: Compiled, row: np.ndarray) -> Feed:
    """Inputs of a step: the row, its positions, and the row as labels, which the graph shifts."""
    known = {"input_ids": row, "labels": row, "position_ids": np.arange(row.size)[None]}
    inputs = compiled.artifact.entries["train"].inputs
    return {
        name: known[name].reshape(type_.shape) for name, type_ in inputs.items() if name in known
    }


@click.command()
@click.option(
    "--source",
    required=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A clone of MobileFineTuner, built.",
)
@click.option("--build", "builds", multiple=True, default=("build",), show_default=True)
@click.option(
    "--case", "cases", multiple=True, type=click.Choice(list(CASES)), help="By default all."
)
@click.option("--tokens", default=128, show_default=True, type=click.IntRange(8))
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--json", "out", type=click.Path(path_type=Path), help="For a line of each engine.")
def main(
    source: Path,
    builds: tuple[str, ...],
    cases: tuple[str, ...],
    tokens: int,
    rounds: int,
    out: Path | None,
) -> None:
    """Print a step's CPU seconds and memory for both."""
    base = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    table = Table(title=f"1 x {tokens} tokens, Adam, one thread; medians of {rounds} rounds")
    for column in ("case", "engine", "CPU s a step", "x", "peak MiB", "first loss"):
        table.add_column(column, justify="left" if column in ("case", "engine") else "right")
    chosen, place = [CASES[name] for name in cases or CASES], (base / source).resolve()
    try:
        require_built(chosen, place, builds)
        for case in chosen:
            click.echo(f"{case.name} ...", err=True)
            rows = compare(case, place, builds, tokens, rounds)
            _show(rows, table)
            if out is not None:
                with (base / out).open("a", encoding="utf-8") as lines:
                    lines.writelines(json.dumps(asdict(row)) + "\n" for row in rows)
    except PockEngineError as error:
        raise click.ClickException(str(error)) from error
    finally:
        if table.rows:
            PlainConsole(100).print(table)


def _show(rows: list[CaseRow], table: Table) -> None:
    """Add a case's engines to the table, compared with ours."""
    for row in rows:
        figures = (
            f"{row.seconds:.3f}",
            f"{row.seconds / rows[0].seconds:.1f}",
            f"{row.peak_bytes / MIB:,.0f}",
            f"{row.loss:.4f}",
        )
        table.add_row(row.case, row.engine, *figures)


if __name__ == "__main__":
    main()
