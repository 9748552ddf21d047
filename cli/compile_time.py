"""`pockengine compile-time MODEL`: how long each stage takes from the model to a binary.

    import    the framework traces the model and the frontend builds the graph
    passes    differentiation, fusion, schedule and memory plan of every entry
    emission  the device's backend writes the program's code
    compiler  the C compiler, from an empty cache of objects, a file at a time on each core

The performance goals bound the first three together. They run in one thread, so on a busy machine
the CPU seconds are the relevant figure. A pass includes the time since the previous one: the first
pass of an entry includes the memory plan of the entry before it.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.box import SIMPLE
from rich.table import Table

from pockengine.backends.artifact import write_artifact
from pockengine.backends.protocol import Backend
from pockengine.backends.registry import backend_for
from pockengine.cli.option_fields import compile_options
from pockengine.cli.options import (
    ModelChoice,
    batch_of,
    make_folder_of,
    model_argument,
    records_option,
)
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.options import Training
from pockengine.devices import find_device
from pockengine.extras import need
from pockengine.farm.load import Load, watching
from pockengine.folders import cache_folder
from pockengine.models.find import Found
from pockengine.options import CompileOptions
from pockengine.terminal import PlainConsole

STAGES = ("import", "passes", "emission")
WHOLE, COMPILER = "import, passes, emission", "C compiler"
SLOWEST = 8
"""Number of passes listed one by one."""


@dataclass
class Times:
    """Seconds of each stage and each pass, one per repetition."""

    stages: dict[str, list[float]] = field(default_factory=dict)
    passes: dict[str, list[float]] = field(default_factory=dict)
    processor: dict[str, list[float]] = field(default_factory=dict)
    _last: float = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time the block."""
        before = self._last = time.perf_counter()
        used = time.process_time()
        yield
        self.stages.setdefault(name, []).append(time.perf_counter() - before)
        self.processor.setdefault(name, []).append(time.process_time() - used)

    def observe(self, name: str, graph: Graph) -> None:
        """Record the time since the previous pass."""
        now = time.perf_counter()
        self.passes.setdefault(name, []).append(now - self._last)
        self._last = now


@click.command("compile-time")
@model_argument()
@compile_options(without=("check", "quantize"))
@click.option("--repeat", default=3, show_default=True, type=click.IntRange(1))
@click.option("--build/--no-build", default=True, show_default=True, help="Run the C compiler.")
@records_option
def compile_time(
    model: ModelChoice,
    options: CompileOptions,
    repeat: int,
    build: bool,
    json_file: Path | None,
) -> None:
    """Time every stage of compiling MODEL."""
    if json_file is not None:
        need("compile-time --json", "farm")
    device, scheme = str(options.device), str(options.scheme)
    backend = backend_for(find_device(device).on(options.backend), options)
    times, found, size = Times(), model.find(), 0
    with watching() as load:
        for _ in range(repeat):
            size = _generate(times, found, options, backend)
        if build:
            _build(times, found, options, backend)
    batch = batch_of(found.graph())
    for kind in (times.stages, times.processor):
        kind[WHOLE] = [sum(parts) for parts in zip(*(kind[s] for s in STAGES), strict=True)]
    console = PlainConsole()
    console.print(_table(f"{model.name}, batch {batch}, {scheme}, for {device}", times))
    summary = f"{size / 1e6:.1f} MB of code, the runtime included"
    console.print("; ".join(filter(None, [summary, load.mark])))
    if json_file is not None:
        _write(make_folder_of(json_file), (model.name, batch, scheme), (device, load), times)


def _generate(times: Times, found: Found, training: Training, backend: Backend) -> int:
    """Run the stages up to the written code once; return its size in bytes."""
    with times.stage("import"):
        graph = found.graph()
    with times.stage("passes"):
        program = compile_program(graph, training, target=backend.target(), observe=times.observe)
    with tempfile.TemporaryDirectory(prefix="pockengine-time-") as folder:
        with times.stage("emission"):
            backend.write(program, Path(folder))
        return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def _build(times: Times, found: Found, training: Training, backend: Backend) -> None:
    """Time the C compiler: the whole build of an artifact except code generation."""
    program = compile_program(found.graph(), training, target=backend.target())
    with tempfile.TemporaryDirectory(prefix="pockengine-time-") as folder, _empty_cache(folder):
        before = time.perf_counter()
        write_artifact(program, backend, Path(folder) / "bare", build_code=False)
        without = time.perf_counter() - before
        with times.stage(COMPILER):
            write_artifact(program, backend, Path(folder) / "built")
    times.stages[COMPILER][-1] -= without


@contextmanager
def _empty_cache(folder: str) -> Iterator[None]:
    """Use an empty object cache, but share zig's own library cache."""
    names = ("XDG_CACHE_HOME", "ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")
    before = {name: os.environ.get(name) for name in names}
    zig = str(cache_folder() / "zig")
    os.environ.update(dict(zip(names, (folder, before[names[1]] or zig, zig), strict=True)))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _table(title: str, times: Times) -> Table:
    table = Table(title=title, box=SIMPLE, title_justify="left")
    table.add_column("stage")
    for name in ("median s", "min", "max", "n", "CPU s"):
        table.add_column(name, justify="right")
    slowest = sorted(times.passes.items(), key=lambda item: -statistics.median(item[1]))
    for stage, seconds in times.stages.items():
        used = "" if stage == COMPILER else f"{statistics.median(times.processor[stage]):.2f}"
        table.add_row(stage, *_figures(seconds), used)
        if stage == "passes":
            for name, parts in slowest[:SLOWEST]:
                table.add_row(f"  {name}", *_figures(parts))
    return table


def _figures(seconds: list[float]) -> tuple[str, ...]:
    median = statistics.median(seconds)
    return (*(f"{x:.2f}" for x in (median, min(seconds), max(seconds))), str(len(seconds)))


def _write(path: Path, what: tuple[str, int, str], where: tuple[str, Load], times: Times) -> None:
    """Append a record per stage, with the stage's name as its note."""
    from pockengine import __version__
    from pockengine.farm.results.results import write_lines
    from pockengine.farm.results.setup import EngineRun, Setup

    (model, batch, scheme), (device, load) = what, where
    setup = Setup(model, "random", batch, threads=1, device=device, busy=load.mark)
    run = EngineRun("pockengine", __version__, scheme)
    records = [
        setup.record(
            run,
            "compile_s",
            statistics.median(seconds),
            spread=(min(seconds), max(seconds), len(seconds)),
            note=f"{stage}{_used(times, stage)}",
        )
        for stage, seconds in times.stages.items()
    ]
    write_lines(records, path)


def _used(times: Times, stage: str) -> str:
    """Report a stage's processor time; the compiler's own processes are not counted."""
    if stage == COMPILER:
        return ""
    return f"; {statistics.median(times.processor[stage]):.2f} CPU s"
