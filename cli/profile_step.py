"""`pockengine profile MODEL`: where a training step's time goes on this machine, kernel by kernel.

Kernels are sorted by the total time of their calls in a step, slowest first, with the minimum time
by the roofline: measured for this machine, or from the device file for a GPU.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.box import SIMPLE
from rich.table import Table

from pockengine.backends.c.alone import time_alone
from pockengine.backends.c.backend import CBackend
from pockengine.backends.c.peaks import measure_peaks
from pockengine.backends.gpu.driven import DrivenBackend
from pockengine.backends.gpu.peaks import peaks_of
from pockengine.backends.gpu.source import LANGUAGES as GPUS
from pockengine.backends.native.profile import KernelTime, example_inputs, profile_step
from pockengine.backends.peaks import ABOVE, WHY_ABOVE, Peaks, describe_peaks, share_text
from pockengine.backends.protocol import BackendOptions
from pockengine.backends.registry import backend_for
from pockengine.cli.option_fields import compile_options
from pockengine.cli.options import (
    ModelChoice,
    batch_of,
    make_folder_of,
    model_argument,
    records_option,
)
from pockengine.cli.profile_board import (
    WIDTH,
    check_shown,
    model_kernels,
    print_modelled,
    short_symbol,
)
from pockengine.cli.steps import Steps
from pockengine.compiler.compile import compile_program
from pockengine.devices import Device, find_device
from pockengine.errors import CompileError
from pockengine.extras import need
from pockengine.farm.cycles.core import modelled_devices
from pockengine.farm.load import Load, watching
from pockengine.options import CompileOptions
from pockengine.terminal import PlainConsole

LEGEND = (
    "us: medians, summed over a kernel's calls in a step; of roof: the least time by the peaks "
    "below, as a share; lost us: the time beyond it; first: the layer of the first call"
)


@dataclass(frozen=True)
class KernelRow:
    """All calls of one kernel in a step; times are totals, `alone_ns` is per call (0: none)."""

    calls: Sequence[KernelTime]
    roof_ns: float
    alone_ns: float

    @property
    def median_ns(self) -> int:
        """Nanoseconds of the kernel's calls in a step: the sum of their medians."""
        return sum(call.median_ns for call in self.calls)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of all calls."""
        return sum(call.multiply_adds for call in self.calls)

    @property
    def nbytes(self) -> int:
        """Bytes that all calls read and write."""
        return sum(call.nbytes for call in self.calls)


@click.command()
@model_argument()
@click.option("--threads", type=click.IntRange(1), help="Default: all cores.")
@click.option("--backend", type=click.Choice(GPUS), help="Default: C, for the CPU.")
@compile_options("device", "scheme", "optimizer", "bf16", "tuned")
@click.option(
    "--steps", default=20, show_default=True, type=click.IntRange(1, 64), help="Steps to time."
)
@click.option(
    "--top", default=30, show_default=True, type=click.IntRange(0), help="Lines; 0 prints all."
)
@click.option("--only", default="", help="Show kernels whose symbol, shapes or names contain this.")
@click.option("--alone", is_flag=True, help="Also time each kernel alone, with cached operands.")
@records_option
def profile(
    model: ModelChoice,
    threads: int | None,
    backend: str | None,
    options: CompileOptions,
    steps: int,
    top: int,
    only: str,
    alone: bool,
    json_file: Path | None,
) -> None:
    """Time every kernel of MODEL's training step on this machine against its peaks.

    With --backend cuda, opencl or vulkan and a --device that has a GPU, each launch is timed on
    that GPU. With --device rpi4 or rpi5 the time on one core of that board is modelled: minutes.
    """
    if json_file is not None:
        need("profile --json", "farm")
    chosen = find_device(options.device).on(backend)
    _check_options(chosen, backend, alone, json_file is not None or (threads or 1) > 1)
    if chosen.name in modelled_devices():
        _profile_board(chosen, options, model, top=top, only=only)
        return
    timed, peaks = _timed_backend(chosen, options, threads)
    graph, scheme = model.find().graph(), str(options.scheme)
    program = compile_program(graph, options, target=timed.target())
    inputs, workers = example_inputs(program.entries["train"].graph), max(1, peaks.threads)
    with watching() as load, Steps() as tell:
        times = profile_step(program, timed, inputs, threads=workers, steps=steps, progress=tell)
    shown = [call for call in times if only in f"{call.symbol} {call.what}"]
    check_shown(shown, only)
    rows = _rows(shown, peaks, _alone(shown, timed, workers) if alone else {})
    place = f"{peaks.threads} threads" if peaks.threads else f"{chosen.gpu.model} by {backend}"
    title = f"{model.name}, batch {batch_of(graph)}, {scheme}, {place}"
    _print(title, rows, top, times=times, peaks=peaks)
    if load.mark is not None:
        click.echo(load.mark)
    if json_file is not None:
        what = chosen.name, model.name, batch_of(graph), scheme
        _write(make_folder_of(json_file), what, times, (peaks, load))


def _check_options(device: Device, backend: str | None, alone: bool, timed: bool) -> None:
    """Raise UsageError for options that do not apply to a device or backend."""
    if device.name in modelled_devices() and (alone or timed):
        raise click.UsageError(
            f"the time on {device.name} is modelled, for one thread; leave out --alone, --json and "
            "--threads"
        )
    if alone and backend is not None:
        raise click.UsageError(f"--alone times kernels of C, not of {backend}; leave it out")


def _profile_board(
    device: Device, options: CompileOptions, model: ModelChoice, top: int, only: str
) -> None:
    """Print the kernels' modelled time on a board that has a cycle model."""
    backend = backend_for(device, options)
    if not isinstance(backend, CBackend):
        raise CompileError(f"profile models kernels of C, not of {device.backend}")
    graph = model.find().graph()
    program = compile_program(graph, options, target=backend.target())
    with Steps() as tell:
        step = model_kernels(program, backend, device.name, tell)
    title = f"{model.name}, batch {batch_of(graph)}, {options.scheme}, one core of {device.name}"
    print_modelled(title, step, device.name, top=top, only=only)


def _timed_backend(
    device: Device, options: BackendOptions, threads: int | None
) -> tuple[CBackend | DrivenBackend, Peaks]:
    """Return the backend that generates kernels for this machine, and the machine's peaks."""
    backend = backend_for(device, options)
    if isinstance(backend, DrivenBackend):
        return backend, peaks_of(device, options.bf16)
    if not isinstance(backend, CBackend) or device.toolchain.target != "native":
        raise CompileError(
            f"profile times this machine, and not {device.name} by {device.backend}; name host, "
            f"{' or '.join(modelled_devices())} (modelled), or with --backend {' or '.join(GPUS)} "
            "a device that describes this machine's GPU"
        )
    return backend, measure_peaks(threads or device.cpu.cores)


def _alone(
    calls: Sequence[KernelTime], backend: CBackend | DrivenBackend, threads: int
) -> dict[str, float]:
    """Return the stand-alone times of C kernels, by symbol."""
    assert isinstance(backend, CBackend)
    times = time_alone([call.node for call in calls], backend, threads)
    return {symbol: median for symbol, (median, _) in times.items()}


def _rows(times: Sequence[KernelTime], peaks: Peaks, alone: dict[str, float]) -> list[KernelRow]:
    """Gather calls by kernel, the longest first."""
    calls: dict[str, list[KernelTime]] = {}
    for time in times:
        calls.setdefault(time.symbol, []).append(time)
    rows = [
        KernelRow(
            same,
            sum(peaks.least_ns(call.multiply_adds, call.nbytes) for call in same),
            alone.get(symbol, 0.0),
        )
        for symbol, same in calls.items()
    ]
    return sorted(rows, key=lambda row: -row.median_ns)


def _print(
    title: str, rows: Sequence[KernelRow], top: int, times: Sequence[KernelTime], peaks: Peaks
) -> None:
    console, whole = PlainConsole(WIDTH), sum(call.median_ns for call in times)
    alone = any(row.alone_ns for row in rows)
    console.print(_table(title, rows[: top or None], whole, peaks=peaks, alone=alone))
    console.print(_operations(rows, whole))
    console.print(_summary(rows, whole, peaks))


def _table(title: str, rows: Sequence[KernelRow], whole: int, peaks: Peaks, alone: bool) -> Table:
    caption = f"{LEGEND}\n{describe_peaks(peaks)}"
    table = Table(title=title, caption=caption, box=SIMPLE)
    table.add_column("kernel", no_wrap=True)
    heads = ("calls", "us", "share", "us each", *(("alone",) if alone else ()))
    for heading in (*heads, "GFLOP/s", "GB/s", "of roof", "lost us"):
        table.add_column(heading, justify="right")
    table.add_column("first", no_wrap=True)
    for row in rows:
        first = row.calls[0]
        table.add_row(
            short_symbol(first.symbol), *_cells(row, whole, alone), first.node.scope or ""
        )
    if any(ABOVE in column.cells for column in table.columns):
        table.caption = f"{caption}\n{WHY_ABOVE}"
    return table


def _cells(row: KernelRow, whole: int, alone: bool) -> Iterator[str]:
    """Yield a kernel's figures; `lost` is the time beyond the roofline's."""
    yield str(len(row.calls))
    yield f"{row.median_ns / 1e3:,.0f}"
    yield f"{100 * row.median_ns / whole:.1f} %"
    yield f"{row.median_ns / len(row.calls) / 1e3:,.1f}"
    if alone:
        yield f"{row.alone_ns / 1e3:,.1f}" if row.alone_ns else "-"
    yield f"{2 * row.multiply_adds / row.median_ns:.1f}"
    yield f"{row.nbytes / row.median_ns:.1f}"
    share = share_text(row.roof_ns, row.median_ns)
    yield share
    yield "-" if share == ABOVE else f"{(row.median_ns - row.roof_ns) / 1e3:,.0f}"


def _operations(rows: Sequence[KernelRow], whole: int) -> Table:
    """Sum the kernels by op."""
    table = Table("op", box=SIMPLE)
    for heading in ("calls", "us", "share", "GFLOP/s", "GB/s", "of roof", "lost us"):
        table.add_column(heading, justify="right")
    sums: dict[str, list[KernelRow]] = {}
    for row in rows:
        sums.setdefault(row.calls[0].op, []).append(row)
    merged = [
        (op, KernelRow([c for row in some for c in row.calls], sum(r.roof_ns for r in some), 0.0))
        for op, some in sums.items()
    ]
    for op, row in sorted(merged, key=lambda pair: -pair[1].median_ns):
        calls, total, share, _, *traffic = _cells(row, whole, alone=False)
        table.add_row(op, calls, total, share, *traffic)
    return table


def _summary(rows: Sequence[KernelRow], whole: int, peaks: Peaks) -> str:
    work = sum(row.multiply_adds for row in rows)
    roof = sum(row.roof_ns for row in rows)
    shown = sum(row.median_ns for row in rows)
    return (
        f"{shown / 1e6:.2f} ms in {sum(len(row.calls) for row in rows)} calls of {len(rows)} "
        f"kernels ({100 * shown / whole:.0f} % of the step): {2 * work / shown:.1f} GFLOP/s, "
        f"{share_text(2 * work / shown, peaks.gflops)} of the peak; the roofline allows "
        f"{roof / 1e6:.2f} ms"
    )


def _write(
    path: Path,
    what: tuple[str, str, int, str],
    times: Sequence[KernelTime],
    conditions: tuple[Peaks, Load],
) -> None:
    """Append a record per call and per peak."""
    from pockengine import __version__
    from pockengine.farm.results.results import write_lines
    from pockengine.farm.results.setup import EngineRun, Setup

    (device, model, batch, scheme), (peaks, load) = what, conditions
    threads = max(1, peaks.threads)
    setup = Setup(model, "random", batch, threads, device=device, board=device, busy=load.mark)
    run = EngineRun("pockengine", __version__, scheme)
    records = [
        setup.record(run, metric, value)
        for metric, value in (("peak_gflops", peaks.gflops), ("peak_gbytes", peaks.gbytes))
    ]
    for index, call in enumerate(times):
        record = setup.record(
            run,
            "kernel_us",
            call.median_ns / 1e3,
            spread=(call.least_ns / 1e3, call.most_ns / 1e3, call.samples),
            note=f"{index} {call.symbol}: {call.what}",
        )
        records.append(record)
    write_lines(records, path)
