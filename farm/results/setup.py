"""Convert figures to records: common fields of a bench, and one record per figure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pockengine.farm.results.commits import current_commit
from pockengine.farm.results.results import MOST_SAMPLES, Record, now

UNITS = {
    "accuracy": "1",
    "step_ms": "ms",
    "guest_instructions": "instructions",
    "guest_packets": "packets",
    "arena_bytes": "bytes",
    "arena_bound_bytes": "bytes",
    "weights_bytes": "bytes",
    "states_bytes": "bytes",
    "first_step_ms": "ms",
    "flops": "1",
    "multiply_adds": "1",
    "roofline_ms": "ms",
    "modelled_ms": "ms",
    "traffic_bytes": "bytes",
    "peak_rss_bytes": "bytes",
    "binary_bytes": "bytes",
    "file_bytes": "bytes",
    "loss": "1",
    "tokens_per_s": "tokens/s",
    "prompt_ms": "ms",
    "token_ms": "ms",
    "max_rel_error": "1",
    "kernel_us": "us",
    "compile_s": "s",
    "peak_gflops": "GFLOP/s",
    "peak_gbytes": "GB/s",
    "ops_passed": "ops",
    "ops_failed": "ops",
    "ops_unsupported": "ops",
    "samples_passed": "samples",
}


@dataclass(frozen=True)
class EngineRun:
    """Subject of a figure: an engine, its version, and its scheme."""

    engine: str
    version: str
    scheme: str


@dataclass(frozen=True)
class Setup:
    """Fields shared by all records of one bench, by default on this machine."""

    model: str
    dataset: str
    batch: int
    threads: int
    device: str = "host"
    board: str = "host"
    emulated: bool = False
    commit: str = field(default_factory=current_commit)
    busy: str | None = None
    """The mark of times measured on a busy machine; counts and sizes are unaffected."""
    dtype: str = "f32"

    def record(
        self,
        run: EngineRun,
        metric: str,
        value: float,
        *,
        spread: tuple[float, float, int] | None = None,
        ok: bool = True,
        note: str | None = None,
        samples: Sequence[float] = (),
    ) -> Record:
        """Make a record; `spread` is min, max and n where the value is a median of `samples`."""
        low, high, count = spread or (value, value, 1)
        return Record(
            time=now(),
            commit=self.commit,
            device=self.device,
            board=self.board,
            emulated=self.emulated,
            model=self.model,
            dataset=self.dataset,
            batch=self.batch,
            dtype=self.dtype,
            scheme=run.scheme,
            # Instructions are counted on one thread, even if the board trained with several.
            threads=1 if metric.startswith("guest_") else self.threads,
            engine=run.engine,
            engine_version=run.version,
            metric=metric,
            unit=UNITS[metric],
            value=float(value),
            min=float(low),
            max=float(high),
            n=count,
            ok=ok,
            note="; ".join(filter(None, [note, self._mark(metric)])) or None,
            samples=tuple(samples) or None,
        )

    def memory(self, run: EngineRun, live: Sequence[int], *, ok: bool = True) -> Record:
        """Make the record of the lower bound of a step's arena; `live` are its samples.

        They are the bytes alive at each of the step's kernels, in order.
        """
        return self.record(
            run,
            "arena_bound_bytes",
            max(live),
            spread=(min(live), max(live), len(live)),
            ok=ok,
            samples=live if len(live) <= MOST_SAMPLES else (),
        )

    def _mark(self, metric: str) -> str | None:
        return self.busy if UNITS[metric] in TIMED and metric not in MODELLED else None


TIMED = {"ms", "us", "s", "GFLOP/s", "GB/s", "tokens/s"}
"""Units of metrics that a busy machine distorts."""

MODELLED = {"roofline_ms", "modelled_ms"}
"""Modelled times, which do not depend on the machine."""


def finite_or_large(error: float) -> float:
    """Return an error in a form that a record can hold: NaN counts as infinitely wrong."""
    return error if math.isfinite(error) else 1e30
