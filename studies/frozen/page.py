"""The page of the comparison, generated from its records.

bazel run //studies/frozen:page -- studies/results/frozen-records.jsonl studies/results/frozen.md
"""

import os
from collections.abc import Sequence
from pathlib import Path

import click

from pockengine.farm.results.results import Record

Rows = dict[tuple[str, str, str], dict[str, Record]]

HEAD = """# Frozen weights in 8 and 4 bits
Made by `bazel run //studies/frozen:page` from `frozen-records.jsonl`, whose lines are those of
`bazel run //studies/frozen` (for CLINC150 with `--train=1500 --test=900 --epochs=3`). MiniLM-L6 on
sentences, batch 16, AdamW, a new head, one thread. Frozen weights of linear layers and embeddings
lie in blocks of 32 with a scale, as in GGUF's Q8_0 (int8) and Q4_0 (int4); the rest is f32, and so
is arithmetic. f32 chose the rate of each part on validation rows by the first seed; all ways train
by it, and by the same seeds, rows and order.

Accuracy is of test rows, the mean of the seeds with the least and the largest. Memory is the sum
of the columns before it: all weights, the optimizer's states, the arena. A step is CPU time, the
median of steps in turns, with the least and the largest.
"""
HEADINGS = (
    *("frozen weights", "accuracy, %", "above f32, points", "weights, MiB", "states, MiB"),
    *("arena, MiB", "memory, MiB", "of f32's", "step, ms"),
)
BYTES = ("weights_bytes", "states_bytes", "arena_bytes")


def page_of(records: Sequence[Record]) -> str:
    """Return the page in Markdown: a table per data set and scheme, in the records' order."""
    rows: Rows = {}
    for record in records:
        key = record.dataset or "", record.scheme, record.dtype
        rows.setdefault(key, {})[record.metric] = record
    parts = [HEAD]
    for dataset, scheme in dict.fromkeys(key[:2] for key in rows):
        ways = {key[2]: figures for key, figures in rows.items() if key[:2] == (dataset, scheme)}
        how = (ways["f32"]["accuracy"].note or "").split("; seeds")[0]
        table = [f"## {dataset}, {scheme}", f"{how.capitalize()}.", "", _row(HEADINGS)]
        table.append(_row(["---"] * len(HEADINGS)))
        table += [_table_row(dtype, figures, ways["f32"]) for dtype, figures in ways.items()]
        parts.append("\n".join(table) + "\n")
    return "\n".join(parts)


def _table_row(dtype: str, figures: dict[str, Record], f32: dict[str, Record]) -> str:
    """Return the line of one storage format."""
    accuracy, step = figures["accuracy"], figures["step_ms"]
    sizes = [figures[name].value for name in BYTES]
    share = sum(sizes) / sum(f32[name].value for name in BYTES)
    return _row(
        [
            dtype,
            f"{100 * accuracy.value:.1f} ({100 * accuracy.min:.1f} to {100 * accuracy.max:.1f})",
            f"{100 * (accuracy.value - f32['accuracy'].value):+.1f}",
            *(f"{size / 2**20:.1f}" for size in [*sizes, sum(sizes)]),
            f"{share:.2f}",
            f"{step.value:.0f} ({step.min:.0f} to {step.max:.0f})",
        ]
    )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


@click.command()
@click.argument("records", type=click.Path(path_type=Path))
@click.argument("page", type=click.Path(path_type=Path))
def main(records: Path, page: Path) -> None:
    """Write the PAGE of RECORDS."""
    place = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    lines = (place / records).read_text().splitlines()
    (place / page).write_text(page_of([Record.from_json(line) for line in lines]))


if __name__ == "__main__":
    main()
