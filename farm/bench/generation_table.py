"""Results of `--suite=generation`, as records and as a table."""

from dataclasses import replace

from rich.table import Table

from pockengine.farm.bench.case import TOKENS
from pockengine.farm.bench.generation import GenerationLine, GenerationResult
from pockengine.farm.references.engines import find_lm_engine
from pockengine.farm.results.results import Record
from pockengine.farm.results.setup import EngineRun, Setup

SCHEME = "predict"
"""In records: nothing trains."""


def generation_records(result: GenerationResult, threads: int) -> list[Record]:
    """Return every figure of one model and prompt as a record."""
    setup = Setup(f"{result.model}-{result.prompt}", TOKENS, 1, threads, busy=result.busy)
    records = []
    for line in result.lines:
        run = EngineRun(line.engine, line.version, SCHEME)
        for metric, timing in (("prompt_ms", line.prompt), ("token_ms", line.token)):
            spread = (timing.min, timing.max, timing.n)
            found = setup.record(run, metric, timing.median, spread=spread, samples=timing.values)
            dtype = find_lm_engine(line.engine).dtype
            records.append(replace(found, dtype=dtype, seq_len=result.prompt))
    return records


def generation_table(result: GenerationResult, threads: int) -> Table:
    """Return a line for each engine: the time of the prompt, and of each token after it."""
    reference = result.lines[0]
    caption = [
        f"Medians in turns, {threads} thread{'s' if threads > 1 else ''} each.",
        f"x: times as fast as {reference.engine}: transformers with its cache, in f32.",
        "Its tokens equal PockEngine's.",
    ]
    caption += [result.absent] if result.absent else []
    caption += [f"* {result.busy}"] if result.busy else []
    table = Table(
        title=f"{result.model}, prompt of {result.prompt} tokens, answer of {result.answer}"
        f"{' *' if result.busy else ''}",
        caption="\n".join(caption),
    )
    table.add_column("engine", no_wrap=True)
    for heading in ("prompt ms", "min to max", "x", "token ms", "min to max", "x", "tokens/s"):
        table.add_column(heading, justify="right")
    for line in result.lines:
        table.add_row(line.engine, *_cells(line, reference))
    return table


def _cells(line: GenerationLine, reference: GenerationLine) -> list[str]:
    cells = []
    pairs = ((line.prompt, reference.prompt, 0), (line.token, reference.token, 1))
    for timing, other, places in pairs:
        cells.append(f"{timing.median:,.{places}f}")
        cells.append(f"{timing.min:,.{places}f} to {timing.max:,.{places}f}")
        cells.append(f"{other.median / timing.median:.2f}")
    return [*cells, f"{1e3 / line.token.median:,.1f}"]
