"""Results of `--suite=llm`, as records and as a table."""

from collections.abc import Iterator
from dataclasses import replace

from rich.table import Table

from pockengine.farm.bench.case import TOKENS
from pockengine.farm.bench.llm import FULL, LORA, PEFT, TORCH, LlmLine, LlmResult
from pockengine.farm.references.engines import find_lm_engine
from pockengine.farm.results.results import Record
from pockengine.farm.results.setup import EngineRun, Setup

NOTHING = "-"
MIB = 2**20


def llm_records(result: LlmResult, threads: int) -> list[Record]:
    """Return every figure of one model and shape as a record."""
    model = f"{result.model}-{result.length}"
    setup = Setup(model, TOKENS, result.batch, threads, busy=result.busy)
    records = []
    for line in result.lines:
        run, timing = EngineRun(line.engine, line.version, line.scheme), line.timing
        spread = (timing.min, timing.max, timing.n)
        note = None if result.groups == 1 else f"in turns in {result.groups} groups"
        found = [
            setup.record(
                run, "step_ms", timing.median, spread=spread, samples=timing.values, note=note
            ),
            setup.record(run, "tokens_per_s", _speed(result, line)),
            setup.record(run, "peak_rss_bytes", line.peak_rss_bytes),
            setup.record(
                run, "loss", line.losses[-1], note=f"of step {len(line.losses)} of training"
            ),
            setup.record(run, "max_rel_error", line.error),
        ]
        if line.arena_bytes:
            found.append(setup.record(run, "arena_bytes", line.arena_bytes))
        dtype = find_lm_engine(line.engine).dtype
        records += [replace(record, dtype=dtype, seq_len=result.length) for record in found]
    return records


def _speed(result: LlmResult, line: LlmLine) -> float:
    return 1e3 * result.tokens / line.timing.median


def llm_table(result: LlmResult, threads: int) -> Table:
    """Lay one model out, scheme by scheme: the iteration, the memory, the loss, tokens a second."""
    caption = [
        f"Medians of steps in turns, {threads} thread{'s' if threads > 1 else ''} each; AdamW.",
        f"x {TORCH}: of {FULL}; x {PEFT}: of {LORA}; this is so many times faster.",
    ]
    if result.groups > 1:
        caption.append(f"They took turns in {result.groups} groups, as all together do not fit.")
    caption += [f"* {result.busy}"] if result.busy else []
    mark = " *" if result.busy else ""
    table = Table(
        title=f"{result.model}, {result.batch} x {result.length} tokens{mark}",
        caption="\n".join(caption),
    )
    table.add_column("scheme")
    table.add_column("engine", no_wrap=True)
    steps = max(len(line.losses) for line in result.lines)
    for heading in (
        "step ms",
        "min to max",
        "tokens/s",
        "peak MiB",
        f"loss, step {steps}",
        "loss off by",
        f"x {TORCH}",
        f"x {PEFT}",
    ):
        table.add_column(heading, justify="right")
    for scheme in dict.fromkeys(line.scheme for line in result.lines):
        for line in (line for line in result.lines if line.scheme == scheme):
            table.add_row(scheme, line.engine, *_cells(result, line))
        for name in result.missing:  # the reasons are below the table
            if name.endswith(f" {scheme}"):
                table.add_row(scheme, name.removesuffix(f" {scheme}"), NOTHING, "not measured")
        table.add_section()
    return table


def _cells(result: LlmResult, line: LlmLine) -> Iterator[str]:
    timing = line.timing
    yield f"{timing.median:,.1f}"
    yield f"{timing.min:,.1f} to {timing.max:,.1f}"
    yield f"{_speed(result, line):,.0f}"
    yield f"{line.peak_rss_bytes / MIB:,.0f}"
    yield f"{line.losses[-1]:.4f}"
    yield f"{line.error:.0e}"
    for engine, scheme in ((TORCH, FULL), (PEFT, LORA)):
        other = _line(result, engine, scheme)
        yield NOTHING if other is None else f"{other.timing.median / timing.median:.2f}"


def _line(result: LlmResult, engine: str, scheme: str) -> LlmLine | None:
    return next((x for x in result.lines if (x.engine, x.scheme) == (engine, scheme)), None)
