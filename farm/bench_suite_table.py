"""What `--suite=peers` found, as records and as tables."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.table import Table

from pockengine import __version__
from pockengine.backends.c.peaks import Peaks, describe_peaks
from pockengine.farm.bench_case import DATASET, TOKENS
from pockengine.farm.bench_records import Context
from pockengine.farm.bench_suite import (
    FULL,
    OURS,
    OURS_BF16,
    REFERENCE,
    TEXTS,
    Found,
    Line,
)
from pockengine.farm.results import Record

NOTHING = "-"
MIB = 2**20


def records_of(found: Found, commit: str, threads: int, peaks: Peaks) -> list[Record]:
    """Return every figure of one model and batch as a record."""
    data = TOKENS if found.model in TEXTS else DATASET
    context = Context(commit, "host", "host", False, found.model, data, found.batch, threads)
    records = []
    for line in found.lines:
        spread = (line.timing.min, line.timing.max, line.timing.n)
        key = (line.engine, line.version, line.scheme)
        figures = [context.record(*key, "step_ms", line.timing.median, spread=spread)]
        for metric in ("max_rel_error", "peak_rss_bytes", "first_step_ms"):
            figures.append(context.record(*key, metric, getattr(line, metric)))
        dtype = "bf16" if line.engine == OURS_BF16 else "f32"
        records += [replace(record, dtype=dtype) for record in figures]
    for scheme, metric, value in _own_facts(found, peaks):
        records.append(context.record(OURS, __version__, scheme, metric, value))
    return records


def _own_facts(found: Found, peaks: Peaks) -> Iterator[tuple[str, str, float]]:
    """Yield scheme, metric and value of what only we have, and of the machine."""
    for scheme, compiled in found.compiled.items():
        train = compiled.program.entries["train"]
        yield scheme, "arena_bytes", compiled.artifact.arena_bytes
        yield scheme, "arena_bound_bytes", train.plan.lower_bound
        yield scheme, "binary_bytes", compiled.artifact.executable.stat().st_size
    yield FULL, "flops", found.work.flops
    yield FULL, "traffic_bytes", found.work.nbytes
    yield FULL, "roofline_ms", found.work.roofline_ms
    yield FULL, "peak_gflops", peaks.gflops
    yield FULL, "peak_gbytes", peaks.gbytes


def best_peer(found: Found) -> Line:
    """Return the fastest engine that is not ours."""
    peers = [line for line in found.lines if not line.is_ours]
    return min(peers, key=lambda line: line.timing.median)


def lines_table(found: Found, peaks: Peaks) -> Table:
    """Lay one model out: ours, then the peers, the fastest first."""
    best = best_peer(found)
    table = Table(title=f"{found.model}, batch {found.batch}", caption=describe_peaks(peaks))
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
    for line in sorted(found.lines, key=lambda x: (not x.is_ours, x.timing.median)):
        table.add_row(_name(line), *_cells(line, best, found, peaks))
    for engine in found.missing:  # the reasons are told below the table
        table.add_row(engine, NOTHING, "not measured")
    return table


def _name(line: Line) -> str:
    return f"{line.engine} {line.scheme}" if line.is_ours else line.engine


def _cells(line: Line, best: Line, found: Found, peaks: Peaks) -> Iterator[str]:
    ms = line.timing.median
    yield f"{ms:.2f}"
    yield f"{line.timing.min:.2f} to {line.timing.max:.2f}"
    yield f"{best.timing.median / ms:.2f}"
    rate = found.work.flops / ms / 1e6
    yield from (
        (f"{rate:.1f}", f"{100 * rate / peaks.gflops:.0f} %")
        if line.scheme == FULL
        else (
            NOTHING,
            NOTHING,
        )
    )
    yield f"{line.max_rel_error:.0e}"
    yield f"{line.peak_rss_bytes / MIB:.0f}"
    yield f"{line.first_step_ms:,.0f}"


def summary_table(results: Sequence[Found]) -> Table:
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
    for found in results:
        own = own_line(found)
        if own is not None:
            table.add_row(f"{found.model} / {found.batch}", *_summary(found, own))
    return table


def schemes_table(results: Sequence[Found]) -> Table:
    """Lay our schemes out beside our full step and TensorFlow's op by op."""
    table = Table(title="our schemes")
    table.add_column("model / batch")
    table.add_column("scheme")
    for heading in ("ms", "x our full", "x best peer", "x tf-eager", "arena MiB", "peak MiB"):
        table.add_column(heading, justify="right")
    for found in results:
        for line in found.lines:
            if line.is_ours:
                name = f"{found.model} / {found.batch}"
                table.add_row(name, f"{line.scheme}{_rounding(line)}", *_scheme_cells(found, line))
    return table


def _rounding(line: Line) -> str:
    return ", bf16" if line.engine == OURS_BF16 else ""


def _scheme_cells(found: Found, line: Line) -> Iterator[str]:
    ms, full = line.timing.median, own_line(found)
    eager = [other for other in found.lines if other.engine == "tf-eager"]
    yield f"{ms:.2f}"
    yield NOTHING if full is None else f"{full.timing.median / ms:.2f}"
    yield f"{best_peer(found).timing.median / ms:.2f}"
    yield f"{eager[0].timing.median / ms:.1f}" if eager else NOTHING
    yield f"{found.compiled[line.scheme].artifact.arena_bytes / MIB:.1f}"
    yield f"{line.peak_rss_bytes / MIB:.0f}"


def own_line(found: Found) -> Line | None:
    """Return our line of the full scheme, None where it has none."""
    lines = [line for line in found.lines if (line.engine, line.scheme) == (OURS, FULL)]
    return lines[0] if lines else None


def _summary(found: Found, own: Line) -> Iterator[str]:
    ms, best = own.timing.median, best_peer(found)
    eager = next(line for line in found.lines if line.engine == REFERENCE)
    peers = [line for line in found.lines if not line.is_ours]
    leanest = min(peers, key=lambda line: line.peak_rss_bytes)
    yield f"{ms:.2f}"
    yield best.engine
    yield f"{best.timing.median:.2f}"
    yield f"{best.timing.median / ms:.2f}"
    yield f"{eager.timing.median / ms:.2f}"
    yield f"{found.work.roofline_ms:.2f}"
    yield f"{100 * found.work.roofline_ms / ms:.0f} %"
    yield f"{own.peak_rss_bytes / MIB:.0f}"
    yield f"{leanest.engine} {leanest.peak_rss_bytes / MIB:.0f}"
    yield f"{leanest.peak_rss_bytes / own.peak_rss_bytes:.1f}"
    plan = found.compiled[FULL].program.entries["train"].plan
    yield f"{found.compiled[FULL].artifact.arena_bytes / plan.lower_bound:.3f}"
    yield f"{own.first_step_ms - ms:.0f}"
