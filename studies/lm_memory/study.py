"""Memory of a decoder's LoRA training under Linux limits, page cache included.

    python -m pockengine.studies.lm_memory.study qwen2.5-0.5b --budget-mb 100 --limit-mb 400
    --limit-mb 300 --work DIR --json FILE

Adapters of rank 8 for all seven matrices, AdamW, rows of 256 tokens, frozen weights in 4 bits,
saved activations in bf16. `--budget-mb` bounds the arena. The runner trains without a limit and
within each limit; the losses must be equal. Weights are random: memory and time do not depend on
them. A limit needs root, for the control group.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.box import SIMPLE
from rich.table import Table

from pockengine import PockEngineError, __version__
from pockengine.backends.artifact import Artifact, load_artifact
from pockengine.backends.tuned import cpu_name
from pockengine.devices import load_device
from pockengine.errors import FinetuneError
from pockengine.farm.results.commits import current_commit
from pockengine.farm.results.results import Record, now
from pockengine.studies.lm_memory.case import MB, RANK, LmCase, compile_adapters, write_rows
from pockengine.studies.lm_memory.limited import LimitedRun, run_limited
from pockengine.terminal import PlainConsole

WIDTH = 100
TOKENS = 256
STEPS = 4
"""Steps of a run. The first reads all weights from the disk, and does not count for the median."""


@dataclass(frozen=True)
class MemoryRow:
    """A run's limit and peak memory, in bytes, and the median seconds of a step.

    `resident_bytes` are the process's own pages, including mapped weights.
    """

    limit_bytes: int | None
    peak_bytes: int
    resident_bytes: int
    seconds: float
    threads: int


def measure(artifact: Artifact, limits: Sequence[int], threads: int, rows: Path) -> list[MemoryRow]:
    """Train without a limit and within each; FinetuneError if a limit changes a loss."""
    command = [
        *(str(artifact.folder / "bin/pockengine-run"), "train", f"--weights={artifact.weights}"),
        *(f"--data={rows}", f"--steps={STEPS}", "--lr=1e-4", f"--threads={threads}"),
    ]
    found: list[MemoryRow] = []
    expected: list[float] = []
    for limit in (None, *limits):
        run = run_limited(command, limit, (artifact.weights, rows))
        losses = [step["loss"] for step in _steps(run)]
        expected = expected or losses
        if losses != expected:
            raise FinetuneError(f"within {limit:,} bytes the losses are {losses}, not {expected}")
        seconds = median([step["ns"] / 1e9 for step in _steps(run)[1:]])
        resident = run.lines[-1]["peak_rss_bytes"]
        found.append(MemoryRow(limit, run.peak_bytes, resident, seconds, threads))
    return found


def _steps(run: LimitedRun) -> list[dict[str, Any]]:
    return [line for line in run.lines if "step" in line]


def _table(rows: Sequence[MemoryRow]) -> Table:
    table = Table(box=SIMPLE)
    for heading in ("limit", "most used", "of it resident", "step, s"):
        table.add_column(heading, justify="right")
    for row in rows:
        limit = "none" if row.limit_bytes is None else f"{row.limit_bytes / MB:,.0f}"
        peaks = (f"{size / MB:,.0f}" for size in (row.peak_bytes, row.resident_bytes))
        table.add_row(limit, *peaks, f"{row.seconds:.2f}")
    table.caption = "MB (10^6 bytes), page cache included"
    return table


def _planned(artifact: Artifact) -> int:
    return artifact.arena_bytes + artifact.params_bytes + artifact.frozen_bytes


def _command(case: LmCase, rows: Sequence[MemoryRow]) -> str:
    """Return the command that measures again."""
    shape = "" if case.tokens == TOKENS else f" --tokens {case.tokens}"
    shape += "" if case.budget_mb is None else f" --budget-mb {case.budget_mb}"
    limits = "".join(f" --limit-mb {row.limit_bytes // MB}" for row in rows if row.limit_bytes)
    return f"bazel run //studies/lm_memory -- {case.model}{shape}{limits} --work DIR"


def _records(
    case: LmCase, artifact: Artifact, rows: Sequence[MemoryRow]
) -> Iterator[dict[str, Any]]:
    """Yield records with the CPU and the command, as the documentation's tables read them."""
    device = load_device("host")
    beside = {"cpu": cpu_name(device), "command": _command(case, rows)}
    for row in rows:
        note = "none" if row.limit_bytes is None else f"{row.limit_bytes // MB:,} MB"
        for metric, (unit, value) in _figures(artifact, row).items():
            record = Record(
                time=now(),
                commit=current_commit(),
                device=device.name,
                board="host",
                emulated=False,
                model=case.model,
                batch=1,
                dtype=case.weights,
                scheme=f"lora-{RANK}",
                threads=row.threads,
                engine="pockengine",
                engine_version=__version__,
                metric=metric,
                unit=unit,
                value=value,
                min=value,
                max=value,
                n=1,
                ok=True,
                seq_len=case.tokens,
                note=note,
            )
            yield {**json.loads(record.to_json()), **beside}


def _figures(artifact: Artifact, row: MemoryRow) -> dict[str, tuple[str, float]]:
    """Return a run's figures by metric, with their units."""
    return {
        "planned_bytes": ("bytes", _planned(artifact)),
        "peak_memory_bytes": ("bytes", row.peak_bytes),
        "peak_rss_bytes": ("bytes", row.resident_bytes),
        "step_ms": ("ms", 1e3 * row.seconds),
    }


@click.command()
@click.argument("model")
@click.option("--tokens", default=TOKENS, show_default=True, type=click.IntRange(2))
@click.option("--budget-mb", type=click.IntRange(1), help="Bound of the arena.")
@click.option("--limit-mb", "limits", multiple=True, type=click.IntRange(1))
@click.option("--weights", default="int4", show_default=True, help="Storage of frozen weights.")
@click.option("--threads", default=2, show_default=True, type=click.IntRange(1))
@click.option("--work", required=True, type=click.Path(path_type=Path), help="Keeps artifacts.")
@click.option("--json", "out", type=click.Path(path_type=Path), help="Append records here.")
def main(
    model: str,
    tokens: int,
    budget_mb: int | None,
    limits: Sequence[int],
    weights: str,
    threads: int,
    work: Path,
    out: Path | None,
) -> None:
    """Compile MODEL, a name that plan-lm knows, and train it within limits of memory."""
    case = LmCase(model, tokens, weights, budget_mb)
    folder = work / str(case).replace(", ", "-").replace(" ", "_")
    rows = work / "rows.safetensors"
    try:
        if not folder.is_dir():
            compile_adapters(case, folder)
        artifact = load_artifact(folder)
        write_rows(case, STEPS, rows)
        found = measure(artifact, [limit * MB for limit in limits], threads, rows)
    except PockEngineError as error:
        raise click.ClickException(str(error)) from error
    terminal = PlainConsole(WIDTH)
    terminal.print(f"{case}: planned {_planned(artifact) / MB:,.0f} MB")
    terminal.print(_table(found))
    if out is not None:
        with out.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(row)}\n" for row in _records(case, artifact, found))


if __name__ == "__main__":
    main()
