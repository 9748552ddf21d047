"""Run ONNX's conformance cases through the importer, the compiler and the generated C.

All cases become entries of one program, which is built once. A case passes if every output has the
expected type and shape and is within the case's tolerance; it is unsupported if the importer or the
compiler refuses it, or if its expected values cannot be compared.

    bazel run //tests/conformance:onnx -- --json records.jsonl
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from pockengine.backends.artifact import write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.backends.native.program import generate
from pockengine.backends.registry import open_session
from pockengine.backends.session import Session
from pockengine.compiler.compile import compile_entries
from pockengine.compiler.ir import Graph
from pockengine.devices.schema import load_device
from pockengine.errors import CompileError, GraphError, ImportModelError
from pockengine.farm.results.results import Record, write_lines
from pockengine.farm.results.setup import EngineRun, Setup
from pockengine.frontends.onnx.model import from_onnx
from pockengine.tests.conformance.onnx_cases import Case, node_cases, result_of, training_cases

PASSED, FAILED, UNSUPPORTED = "passed", "failed", "unsupported"
STATUSES = (PASSED, FAILED, UNSUPPORTED)


@dataclass(frozen=True)
class CaseResult:
    """The outcome of a case, and the reason if it did not pass."""

    case: Case
    status: str
    reason: str = ""


def run_cases(cases: Sequence[Case], folder: Path, threads: int = 1) -> list[CaseResult]:
    """Import, compile, build and run the cases in generated C for this machine."""
    backend = CBackend(load_device("host"))
    graphs: dict[str, Graph] = {}
    outcomes: list[CaseResult] = []
    for case in cases:
        if case.incomparable is not None:
            outcomes.append(CaseResult(case, UNSUPPORTED, case.incomparable))
            continue
        try:
            graphs[case.name] = _compiled_alone(case, backend)
        except (ImportModelError, GraphError, CompileError) as error:
            outcomes.append(CaseResult(case, UNSUPPORTED, str(error).splitlines()[-1].strip()))
    if graphs:
        program = compile_entries("onnx_cases", graphs, target=backend.target())
        artifact = write_artifact(program, backend, folder / "artifact")
        with open_session(artifact, threads) as session:
            outcomes += [_outcome(case, session) for case in cases if case.name in graphs]
    return sorted(outcomes, key=lambda outcome: outcome.case.name)


def _compiled_alone(case: Case, backend: CBackend) -> Graph:
    """Import a case and check that it compiles, so that it cannot break the common program."""
    graph = from_onnx(case.model, constants=case.constants)
    program = compile_entries(case.name, {case.name: graph}, target=backend.target(), check=True)
    generate(program, backend)
    return graph


def _outcome(case: Case, session: Session) -> CaseResult:
    known = session.artifact.entries[case.name].inputs
    inputs = {name: array for name, array in case.inputs.items() if name in known}
    found = session.run(case.name, inputs)
    for name, expected in case.outputs.items():
        actual = result_of(found, name)
        if actual.dtype != expected.dtype or actual.shape != expected.shape:
            message = (
                f"{actual.dtype}{list(actual.shape)}, not {expected.dtype}{list(expected.shape)}"
            )
            return CaseResult(case, FAILED, f"output {name} is {message}")
        if not np.allclose(actual, expected, case.rtol, case.atol, equal_nan=True):
            wrong = np.abs(actual.astype(np.float64) - expected.astype(np.float64)).max()
            return CaseResult(case, FAILED, f"output {name} is off by {wrong:g}")
    return CaseResult(case, PASSED)


def count(outcomes: Sequence[CaseResult]) -> dict[str, dict[str, int]]:
    """Count the cases of each operator by outcome."""
    counts: dict[str, dict[str, int]] = {}
    for outcome in outcomes:
        row = counts.setdefault(outcome.case.op, dict.fromkeys(STATUSES, 0))
        row[outcome.status] += 1
    return dict(sorted(counts.items()))


def status_of(row: dict[str, int]) -> str:
    """Judge an operator: failed if any case fails, supported if one passes."""
    return FAILED if row[FAILED] else PASSED if row[PASSED] else UNSUPPORTED


def table_of(outcomes: Sequence[CaseResult]) -> Table:
    """Return the counts as a table with a row per operator."""
    table = Table(title=f"ONNX {onnx.__version__} cases in generated C")
    table.add_column("operator")
    for status in STATUSES:
        table.add_column(status, justify="right")
    for op, row in count(outcomes).items():
        table.add_row(op, *(str(row[status]) for status in STATUSES))
    table.add_section()
    totals = [sum(outcome.status == status for outcome in outcomes) for status in STATUSES]
    table.add_row("all", *map(str, totals))
    return table


def records_of(outcomes: Sequence[CaseResult], threads: int) -> list[Record]:
    """Convert the counts to records."""
    setup = Setup("onnx-node-cases", f"onnx-{onnx.__version__}", 1, threads, board="local")
    statuses = [status_of(row) for row in count(outcomes).values()]
    figures = {f"ops_{status}": statuses.count(status) for status in STATUSES}
    figures["samples_passed"] = sum(outcome.status == PASSED for outcome in outcomes)
    ok = FAILED not in statuses
    run = EngineRun("pockengine", setup.commit, "none")
    return [setup.record(run, metric, value, ok=ok) for metric, value in figures.items()]


@click.command()
@click.option("--all", "every", is_flag=True, help="Run all cases of single operators.")
@click.option("--match", default="", help="Run only cases whose names contain this.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Append records to this file."
)
def main(every: bool, match: str, threads: int, json_file: Path | None) -> None:
    """Run ONNX's training-related cases in generated C; the exit status is 1 if one failed."""
    cases = [case for case in (node_cases() if every else training_cases()) if match in case.name]
    with tempfile.TemporaryDirectory(prefix="pockengine-onnx-") as folder:
        outcomes = run_cases(cases, Path(folder), threads)
    console = Console()
    for outcome in outcomes:
        if outcome.reason and (outcome.status == FAILED or not every):
            console.print(f"{outcome.status}: {outcome.case.name}: {outcome.reason}", markup=False)
    console.print(table_of(outcomes))
    if json_file is not None:
        # Bazel runs programs in another folder.
        origin = Path(os.environ.get("BUILD_WORKING_DIRECTORY", ".")).absolute()
        write_lines(records_of(outcomes, threads), origin / json_file)
    sys.exit(any(outcome.status == FAILED for outcome in outcomes))


if __name__ == "__main__":
    main()
