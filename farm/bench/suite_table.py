"""Results of `--suite=peers`, as records and as tables."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.table import Table

from pockengine import __version__
from pockengine.backends.peaks import ABOVE, WHY_ABOVE, Peaks, describe_peaks, share_text
from pockengine.compiled import Compiled
from pockengine.compiler.memory.timeline import live_bytes
from pockengine.farm.bench.case import dataset_of
from pockengine.farm.bench.running import OURS, OURS_BF16, Line
from pockengine.farm.bench.suite import FULL, REFERENCE, SuiteResult
from pockengine.farm.results.results import Record
from pockengine.farm.results.setup import EngineRun, Setup

NOTHING = "-"
MIB = 2**20


def records_of(result: SuiteResult, threads: int, peaks: Peaks | None = None) -> list[Record]:
    """Return every figure of one model and batch as a record; of the machine with its peaks."""
    dataset = dataset_of(result.model)
    setup = Setup(result.model, dataset, result.batch, threads, busy=result.busy)
    records = []
    for line in result.lines:
        spread = (line.timing.min, line.timing.max, line.timing.n)
        run = EngineRun(line.engine, line.version, line.scheme)
        figures = [setup.record(run, "step_ms", line.timing.median, spread=spread)]
        for metric in ("max_rel_error", "peak_rss_bytes", "first_step_ms"):
            figures.append(setup.record(run, metric, getattr(line, metric)))
        if line.file_bytes:
            figures.append(setup.record(run, "file_bytes", line.file_bytes))
        dtype = "bf16" if line.engine == OURS_BF16 else "f32"
        records += [replace(record, dtype=dtype) for record in figures]
    for scheme, metric, value in _own_facts(result, peaks):
        records.append(setup.record(EngineRun(OURS, __version__, scheme), metric, value))
    for scheme, compiled in result.compiled.items():
        records.append(setup.memory(EngineRun(OURS, __version__, scheme), _live(compiled)))
    return records


def _own_facts(result: SuiteResult, peaks: Peaks | None) -> Iterator[tuple[str, str, float]]:
    """Yield scheme, metric and value of our own figures, and of the machine."""
    for scheme, compiled in result.compiled.items():
        yield scheme, "arena_bytes", compiled.artifact.arena_bytes
        yield scheme, "binary_bytes", compiled.artifact.executable.stat().st_size
    if peaks is None:
        return
    yield FULL, "flops", result.work.flops
    yield FULL, "traffic_bytes", result.work.nbytes
    yield FULL, "roofline_ms", result.work.roofline_ms
    yield FULL, "peak_gflops", peaks.gflops
    yield FULL, "peak_gbytes", peaks.gbytes


def _live(compiled: Compiled) -> list[int]:
    program = compiled.program
    return live_bytes(program.entries["train"], program.alignment)


def best_peer(result: SuiteResult) -> Line:
    """Return the fastest engine that is not ours."""
    peers = [line for line in result.lines if not line.is_ours]
    return min(peers, key=lambda line: line.timing.median)


def lines_table(result: SuiteResult, peaks: Peaks) -> Table:
    """Lay one model out: ours, then the peers, the fastest first."""
    best = best_peer(result)
    table = Table(title=result.name)
    table.add_column("engine")
    for heading in (
        "step ms",
        "min to max",
        "x best peer",
        "GFLOP/s",
        "of peak",
        "error",
        "peak MiB",
        "first step ms",
    ):
        table.add_column(heading, justify="right")
    for line in sorted(result.lines, key=lambda x: (not x.is_ours, x.timing.median)):
        table.add_row(_name(line), *_cells(line, best, result, peaks))
    above = any(ABOVE in column.cells for column in table.columns)
    why = WHY_ABOVE if above else None
    notes = (describe_peaks(peaks), why, result.busy and f"* {result.busy}")
    table.caption = "\n".join(filter(None, notes))
    for engine in result.missing:  # the reasons are below the table
        table.add_row(engine, NOTHING, "not measured")
    return table


def _name(line: Line) -> str:
    return f"{line.engine} {line.scheme}" if line.is_ours else line.engine


def _cells(line: Line, best: Line, result: SuiteResult, peaks: Peaks) -> Iterator[str]:
    ms = line.timing.median
    yield f"{ms:.2f}"
    yield f"{line.timing.min:.2f} to {line.timing.max:.2f}"
    yield f"{best.timing.median / ms:.2f}"
    rate = result.work.flops / ms / 1e6
    yield f"{rate:.1f}" if line.scheme == FULL else NOTHING
    in_f32 = line.scheme == FULL and line.engine != OURS_BF16  # the peak is of f32
    yield share_text(rate, peaks.gflops) if in_f32 else NOTHING
    yield f"{line.max_rel_error:.0e}"
    yield f"{line.peak_rss_bytes / MIB:.0f}"
    yield f"{line.first_step_ms:,.0f}"


def summary_table(results: Sequence[SuiteResult]) -> Table:
    """One line for each model and batch: ours against the best peer, speed and memory."""
    table = Table(title="ours, full, against the best peer")
    table.add_column("model / batch")
    for heading in (
        "ms",
        "best peer",
        "its ms",
        "x faster",
        f"x {REFERENCE}",
        "roofline ms",
        "of roofline",
        "peak MiB",
        "leanest peer",
        "x leaner",
        "arena / bound",
        "start ms",
    ):
        table.add_column(heading, justify="right")
    for result in results:
        own = own_line(result)
        if own is not None:
            table.add_row(result.name, *_summary(result, own))
    return table


def schemes_table(results: Sequence[SuiteResult]) -> Table:
    """Lay out our schemes, compared with our full step and TensorFlow's eager one."""
    table = Table(title="our schemes")
    table.add_column("model / batch")
    table.add_column("scheme")
    for heading in ("ms", "x our full", "x best peer", "x tf-eager", "arena MiB", "peak MiB"):
        table.add_column(heading, justify="right")
    for result in results:
        for line in result.lines:
            if line.is_ours:
                name = result.name
                table.add_row(name, f"{line.scheme}{_rounding(line)}", *_scheme_cells(result, line))
    return table


def _rounding(line: Line) -> str:
    return ", bf16" if line.engine == OURS_BF16 else ""


def _scheme_cells(result: SuiteResult, line: Line) -> Iterator[str]:
    ms, full = line.timing.median, own_line(result)
    eager = [other for other in result.lines if other.engine == "tf-eager"]
    yield f"{ms:.2f}"
    yield NOTHING if full is None else f"{full.timing.median / ms:.2f}"
    yield f"{best_peer(result).timing.median / ms:.2f}"
    yield f"{eager[0].timing.median / ms:.1f}" if eager else NOTHING
    yield f"{result.compiled[line.scheme].artifact.arena_bytes / MIB:.1f}"
    yield f"{line.peak_rss_bytes / MIB:.0f}"


def own_line(result: SuiteResult) -> Line | None:
    """Return our line of the full scheme, or None."""
    lines = [line for line in result.lines if (line.engine, line.scheme) == (OURS, FULL)]
    return lines[0] if lines else None


def _summary(result: SuiteResult, own: Line) -> Iterator[str]:
    ms, best = own.timing.median, best_peer(result)
    eager = next(line for line in result.lines if line.engine == REFERENCE)
    peers = [line for line in result.lines if not line.is_ours]
    leanest = min(peers, key=lambda line: line.peak_rss_bytes)
    yield f"{ms:.2f}"
    yield best.engine
    yield f"{best.timing.median:.2f}"
    yield f"{best.timing.median / ms:.2f}"
    yield f"{eager.timing.median / ms:.2f}"
    yield f"{result.work.roofline_ms:.2f}"
    yield share_text(result.work.roofline_ms, ms)
    yield f"{own.peak_rss_bytes / MIB:.0f}"
    yield f"{leanest.engine} {leanest.peak_rss_bytes / MIB:.0f}"
    yield f"{leanest.peak_rss_bytes / own.peak_rss_bytes:.1f}"
    plan = result.compiled[FULL].program.entries["train"].plan
    yield f"{result.compiled[FULL].artifact.arena_bytes / plan.lower_bound:.3f}"
    yield f"{own.first_step_ms - ms:.0f}"
