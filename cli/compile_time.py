"""`pockengine compile-time MODEL`: how long each stage takes from the model to a binary.

    import    the framework traces the model and the frontend builds the graph
    passes    differentiation, fusion, schedule and memory plan of every entry
    emission  C from the program
    C         the C compiler, from an empty cache of objects, two files at a time

What the goals bound is the first three together. They run in one thread: on a busy machine the CPU
seconds beside the wall's say what they take. A pass is charged with what happens since the one
before: the first of an entry with the memory plan of the entry before it.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE
from rich.table import Table

from pockengine.backends.artifact import write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.backends.c.build import cache_folder
from pockengine.backends.c.program import generate
from pockengine.compiler.compile import Training, compile_program
from pockengine.compiler.ir.graph import Graph
from pockengine.devices import load_device
from pockengine.models.registry import parse_model
from pockengine.terminal import PlainConsole

STAGES = ("import", "passes", "emission")
WHOLE, COMPILER = "import, passes, emission", "C compiler"
SLOWEST = 8
"""Passes that are listed one by one."""


@dataclass
class Times:
    """Seconds of each stage and of each pass, one for each repetition."""

    stages: dict[str, list[float]] = field(default_factory=dict)
    passes: dict[str, list[float]] = field(default_factory=dict)
    processor: dict[str, list[float]] = field(default_factory=dict)
    _last: float = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what is inside."""
        before = self._last = time.perf_counter()
        used = time.process_time()
        yield
        self.stages.setdefault(name, []).append(time.perf_counter() - before)
        self.processor.setdefault(name, []).append(time.process_time() - used)

    def observe(self, name: str, graph: Graph) -> None:
        """Take the time since the pass before."""
        now = time.perf_counter()
        self.passes.setdefault(name, []).append(now - self._last)
        self._last = now


@click.command("compile-time")
@click.argument("model")
@click.option("--batch", default=1, show_default=True, type=click.IntRange(1))
@click.option("--device", default="host", show_default=True, help="A file of devices/.")
@click.option("--scheme", default="full", show_default=True, help="A preset, or a TOML file.")
@click.option("--repeat", default=3, show_default=True, type=click.IntRange(1))
@click.option("--build/--no-build", default=True, show_default=True, help="Run the C compiler.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Append records here.")
def compile_time(
    model: str,
    batch: int,
    device: str,
    scheme: str,
    repeat: int,
    build: bool,
    json_file: Path | None,
) -> None:
    """Time every stage of compiling MODEL, a name of the registry."""
    backend = CBackend(load_device(device))
    times, module, size = Times(), _module(model), 0
    for _ in range(repeat):
        size = _generate(times, module, (model, batch, scheme), backend)
    if build:
        _build(times, module, (model, batch, scheme), backend)
    for kind in (times.stages, times.processor):
        kind[WHOLE] = [sum(parts) for parts in zip(*(kind[s] for s in STAGES), strict=True)]
    console = PlainConsole()
    console.print(_table(f"{model}, batch {batch}, {scheme}, for {device}", times))
    console.print(f"{size / 1e6:.1f} MB of C")
    if json_file is not None:
        _write(json_file, (model, batch, scheme), device, times)


def _module(model: str) -> Any:
    import torch

    torch.manual_seed(0)
    return parse_model(model).build().train()


def _generate(times: Times, module: Any, what: tuple[str, int, str], backend: CBackend) -> int:
    """Run the stages up to the C text once; return its size in bytes."""
    from pockengine.frontends import from_torch

    model, batch, scheme = what
    name = parse_model(model)
    with times.stage("import"):
        graph = from_torch(module, name.example_inputs(batch), loss=name.loss)
    with times.stage("passes"):
        program = compile_program(
            graph, Training(scheme), target=backend.target(), observe=times.observe
        )
    with times.stage("emission"):
        files = generate(program, backend)
    return sum(len(text) for text in files.values())


def _build(times: Times, module: Any, what: tuple[str, int, str], backend: CBackend) -> None:
    """Time the C compiler: all that an artifact takes but for generating its code."""
    from pockengine.frontends import from_torch

    model, batch, scheme = what
    name = parse_model(model)
    graph = from_torch(module, name.example_inputs(batch), loss=name.loss)
    program = compile_program(graph, Training(scheme), target=backend.target())
    with tempfile.TemporaryDirectory(prefix="pockengine-time-") as folder, _empty_cache(folder):
        before = time.perf_counter()
        write_artifact(program, backend, Path(folder) / "bare", build_code=False)
        without = time.perf_counter() - before
        with times.stage(COMPILER):
            write_artifact(program, backend, Path(folder) / "built")
    times.stages[COMPILER][-1] -= without


@contextmanager
def _empty_cache(folder: str) -> Iterator[None]:
    """Keep objects in another place, but zig's own library where it is."""
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


def _write(path: Path, what: tuple[str, int, str], device: str, times: Times) -> None:
    """Append a record for each stage, whose name is its note."""
    from pockengine import __version__
    from pockengine.farm.results.commits import current_commit
    from pockengine.farm.results.results import write_lines
    from pockengine.farm.results.setup import Setup

    model, batch, scheme = what
    setup = Setup(current_commit(), device, "host", False, model, "random", batch, 1)
    records = [
        setup.record(
            "pockengine",
            __version__,
            scheme,
            "compile_s",
            statistics.median(seconds),
            spread=(min(seconds), max(seconds), len(seconds)),
            note=f"{stage}{_used(times, stage)}",
        )
        for stage, seconds in times.stages.items()
    ]
    write_lines(records, Path(os.environ.get("BUILD_WORKING_DIRECTORY", ".")) / path)


def _used(times: Times, stage: str) -> str:
    """Say what a stage took of the processor; the compiler's own processes are not counted."""
    if stage == COMPILER:
        return ""
    return f"; {statistics.median(times.processor[stage]):.2f} CPU s"
