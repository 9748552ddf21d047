"""Run PyTorch's OpInfo samples through the frontend, the compiler and the generated C.

bazel run //tests/conformance:opinfo -- --core
bazel run //tests/conformance:opinfo -- --op matmul --op nn.functional.conv2d --limit 5

Each sample's loss (its results, randomly weighted) and all gradients are compared with eager
PyTorch's. An op passes if at least one non-empty sample passes and none fails; samples that cannot
be imported or compiled are unsupported.
"""

import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pockengine.farm.results.results import write_lines
from pockengine.tests.conformance import opinfo_report as report
from pockengine.tests.conformance.opinfo_run import FAILED, Prepared, Result, Runner
from pockengine.tests.conformance.opinfo_samples import CORE, differentiable_ops

SAMPLES_PER_BUILD = 128

FAILURES = 40
"""Maximum number of failed samples that are listed."""


@click.command(help=__doc__)
@click.option("--op", "names", multiple=True, help="Full name of an op; repeatable.")
@click.option("--core", is_flag=True, help="Run the 30 core ops of small networks.")
@click.option("--limit", type=click.IntRange(min=1), help="Samples per op, evenly spread.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Append records to this file."
)
def main(names: tuple[str, ...], core: bool, limit: int | None, json_file: Path | None) -> None:
    """Run the selected ops and print the tables; the exit status is 1 if a sample failed."""
    warnings.simplefilter("ignore")  # from PyTorch, about its test inputs
    ops = _chosen(differentiable_ops(), names, core)
    results = run_ops(ops, limit, Console(stderr=True))
    tallies = report.tallies(results)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(report.op_table(tallies))
    console.print(report.reason_table(tallies))
    for result in [result for result in results if result.status == FAILED][:FAILURES]:
        click.echo(f"FAILED {result.op} sample {result.index}: {report.reason(result)}")
    click.echo(report.summary(tallies))
    if json_file is not None:
        which = "all ops" if len(ops) > len(CORE) else ", ".join(ops)
        scope = f"{'core ops' if core and not names else which}, {limit or 'all'} samples each"
        folder = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
        write_lines(report.records(tallies, scope), folder / json_file)
    sys.exit(any(result.status == FAILED for result in results))


def run_ops(ops: Mapping[str, Any], limit: int | None, console: Console) -> list[Result]:
    """Run the ops in order, with a build after every SAMPLES_PER_BUILD samples."""
    runner, results = Runner(), []
    waiting: list[Prepared] = []
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("ops", total=len(ops))
        for name, op in ops.items():
            progress.update(task, description=name)
            for item in runner.prepare(name, op, limit):
                if isinstance(item, Result):
                    results.append(item)
                    continue
                waiting.append(item)
                if len(waiting) == SAMPLES_PER_BUILD:
                    results.extend(runner.finish(waiting))
                    waiting = []
            progress.advance(task)
        results.extend(runner.finish(waiting))
    return sorted(results, key=lambda result: (result.op, result.index))


def _chosen(ops: Mapping[str, Any], names: tuple[str, ...], core: bool) -> dict[str, Any]:
    """Return the requested ops, by default all."""
    expected = dict.fromkeys([*names, *(CORE if core else ())]) or ops
    unknown = sorted(set(expected) - set(ops))
    if unknown:
        raise click.BadParameter(f"PyTorch has no differentiable op {', '.join(unknown)}")
    return {name: ops[name] for name in expected}


if __name__ == "__main__":
    main()
