"""The table of a bench, from its records."""

from collections.abc import Sequence

from rich.table import Table

from pockengine.farm.results.results import Record

SPEED = ("step_ms", "guest_instructions", "guest_packets")
OURS, FULL = "pockengine", "full"
TENSORFLOW = ("tf-graph", "tf-eager")
MODELLED = "modelled_ms"
NOTHING = "-"


def bench_table(records: Sequence[Record]) -> Table:
    """Format records of one bench: a row for each engine and scheme, ours above its peers."""
    first = records[0]
    kind = "emulated" if first.emulated else "real"
    table = Table(
        title=f"{first.model}, batch {first.batch}, on {first.board} ({kind}), {first.commit}",
        caption=_caption(records),
    )
    packets = any(record.metric == "guest_packets" for record in records)
    speed = "packets/step" if packets else "instructions/step" if first.emulated else "step"
    table.add_column("scheme")
    table.add_column("engine", no_wrap=True)
    varies = any(map(_varies, records))
    modelled = any(record.metric == MODELLED for record in records)
    headings = (speed, *["min to max"] * varies, *["modelled"] * modelled, "x TensorFlow")
    for heading in (*headings, "arena", "peak memory", "binary", "max rel. error"):
        table.add_column(heading, justify="right")
    last = ""
    several = len({record.dtype for record in records}) > 1
    for (scheme, engine, dtype), figures in _rows(records).items():
        if last and scheme != last:
            table.add_section()
        last = scheme
        table.add_row(
            scheme,
            f"{engine} {dtype}" if several else engine,
            *_speed(figures)[: 1 + varies],
            *[_modelled(figures)] * modelled,
            _ratio(records, scheme, figures),
            *(_size(figures, f"{name}_bytes") for name in ("arena", "peak_rss", "binary")),
            _error(figures),
        )
    return table


def _caption(records: Sequence[Record]) -> str:
    first = records[0]
    lines = ["x TensorFlow: TensorFlow's figure over this one; above 1 is less than TensorFlow."]
    if first.emulated:
        lines.append("Instructions or packets of one thread under emulation; they are not cycles.")
    else:
        lines.append(f"Medians of interleaved steps, {first.threads} threads.")
    lines.append(
        "max rel. error: the largest of losses, and of ours of the tensors after the last step too;"
    )
    lines.append("from PyTorch's, of int8 from our own oracle's.")
    lines += sorted(
        {record.note for record in records if record.metric == MODELLED and record.note}
    )
    lines += sorted({f"* {record.note}" for record in records if record.busy})
    return "\n".join(lines)


def _rows(records: Sequence[Record]) -> dict[tuple[str, str, str], dict[str, Record]]:
    """Return records by metric, by scheme, engine and dtype, in the order in which they come."""
    rows: dict[tuple[str, str, str], dict[str, Record]] = {}
    for record in records:
        key = record.scheme, record.engine, record.dtype
        rows.setdefault(key, {})[record.metric] = record
    by_scheme = list(dict.fromkeys(scheme for scheme, *_ in rows))
    return {key: rows[key] for key in sorted(rows, key=lambda key: by_scheme.index(key[0]))}


def _find_speed(figures: dict[str, Record]) -> Record | None:
    return next((figures[name] for name in SPEED if name in figures), None)


def _speed(figures: dict[str, Record]) -> tuple[str, str]:
    """Return the median and the spread of a step."""
    record = _find_speed(figures)
    if record is None:
        return NOTHING, NOTHING
    if record.metric.startswith("guest_"):
        million = 1e6
        spread = f"{record.min / million:,.1f} to {record.max / million:,.1f}"
        return f"{record.value / million:,.1f} M", spread
    return f"{record.value:.2f} ms{'*' * record.busy}", f"{record.min:.2f} to {record.max:.2f}"


def _modelled(figures: dict[str, Record]) -> str:
    """Return the modelled time of a step."""
    return f"{figures[MODELLED].value:,.1f} ms" if MODELLED in figures else NOTHING


def _varies(record: Record) -> bool:
    """Whether the spread of a step's figures shows: counts of instructions hardly have any."""
    low, high = _speed({record.metric: record})[1].partition(" to ")[::2]
    return high not in ("", low)


def meaning_of(records: Sequence[Record]) -> str | None:
    """Return the cheapest scheme's savings over full training; None unless both were measured."""
    ours = {key: figures for key, figures in _rows(records).items() if key[1] == OURS}
    steps = {key: speed.value for key, figures in ours.items() if (speed := _find_speed(figures))}
    full = next((key for key in steps if key[0] == FULL), None)
    if full is None or len(steps) < 2:
        return None
    least = min(steps, key=lambda key: steps[key])
    if least == full:
        return None
    unit = "instructions" if next(iter(ours[full].values())).emulated else "time"
    text = f"A step of {least[0]} takes {steps[least] / steps[full]:.2f} of full training's {unit}"
    arenas = [ours[key].get("arena_bytes") for key in (least, full)]
    if arenas[0] is not None and arenas[1] is not None:
        text += f", in {arenas[0].value / arenas[1].value:.2f} of its arena"
    ratio = _ratio(records, FULL, ours[full])
    if ratio != NOTHING:
        text += f"; TensorFlow's full training takes {ratio} times ours"
    return f"{text}."


def _ratio(records: Sequence[Record], scheme: str, figures: dict[str, Record]) -> str:
    """Return TensorFlow's figure for the scheme over this row's; its faster mode counts."""
    own = _find_speed(figures)
    if own is None:
        return NOTHING
    theirs = [
        record.value
        for record in records
        if (record.scheme, record.metric) == (scheme, own.metric) and record.engine in TENSORFLOW
    ]
    return f"{min(theirs) / own.value:.2f}" if theirs else NOTHING


def _size(figures: dict[str, Record], metric: str) -> str:
    if metric not in figures:
        return NOTHING
    size = figures[metric].value
    return f"{size / 2**20:.2f} MiB" if size >= 2**20 else f"{size / 2**10:.1f} KiB"


def _error(figures: dict[str, Record]) -> str:
    record = figures.get("max_rel_error")
    if record is None:
        return NOTHING
    return f"{record.value:.1e}" if record.ok else f"{record.value:.1e} FAILED"
