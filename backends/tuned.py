"""Tuning results of a device: the best plan for each problem, in a readable file.

A table is JSON: the device, the unit, and a row for each op and shape with the winning plan, its
figure, and the figure of the default plan. It has only plan names and numbers: an unknown plan is
ignored, and for any file the generated code is one of those that the planners offer.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from pockengine.backends.picking import P, Picker, PlanCandidate, cheapest
from pockengine.devices.schema import Device
from pockengine.errors import CompileError, reason_of
from pockengine.files import write_text_whole

SCHEMA = 1

_AGAIN = "give a table of this release, or run pockengine tune to write a new one"


@dataclass(frozen=True)
class TunedPlan:
    """The winning plan, and the default: the plan with the cheapest estimate.

    `kernels` is a digest of everything measured; if it changes, the problem is measured again.
    """

    plan: str
    value: int
    default: str
    default_value: int
    kernels: str


@dataclass(frozen=True)
class TunedTable:
    """Rows by problem, for one device and its processor. `unit` is the unit of the values."""

    device: str
    processor: str
    unit: str
    rows: Mapping[str, TunedPlan]

    def pick(self, key: str, candidates: Sequence[PlanCandidate[P]]) -> P:
        """Pick the winning plan, or the cheapest estimate if there is none."""
        row = self.rows.get(key)
        for candidate in candidates:
            if row is not None and candidate.label == row.plan:
                return candidate.plan
        return cheapest(key, candidates)

    def with_rows(self, rows: Mapping[str, TunedPlan]) -> "TunedTable":
        """Add rows, replacing older ones of the same problem."""
        return replace(self, rows={**self.rows, **rows})


def new_table(device: Device, unit: str, processor: str = "") -> TunedTable:
    """Return an empty table; by default for the CPU."""
    return TunedTable(device.name, processor or cpu_name(device), unit, {})


def cpu_name(device: Device) -> str:
    """Key of a device's CPU plans: `host` differs between machines."""
    cpu = device.cpu
    return f"{cpu.model}, {cpu.isa}, {cpu.cores} cores"


def gpu_name(device: Device) -> str:
    """Key of a device's GPU plans; DeviceError if it has no GPU."""
    gpu = device.gpu
    return ", ".join(filter(None, (gpu.model, gpu.language, gpu.architecture)))


def picker_of(path: Path | str | None, device: Device, processor: str = "") -> Picker:
    """Return a picker that uses a table file, or the estimates without one."""
    return cheapest if path is None else read_table(Path(path), device, processor).pick


def read_table(path: Path, device: Device, processor: str = "") -> TunedTable:
    """Read a table of a device's processor, by default the CPU.

    CompileError names the file and the fault, or the device it belongs to.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CompileError(f"tuned plans {path}: {reason_of(error)}; {_AGAIN}") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise CompileError(
            f"tuned plans {path}: not a table of schema {SCHEMA} of pockengine tune; {_AGAIN}"
        )
    names, rows = ("device", "cpu", "unit"), content.get("rows")
    texts = [text for name in names if isinstance(text := content.get(name), str)]
    if len(texts) != len(names) or not isinstance(rows, dict):
        raise CompileError(f"tuned plans {path}: needs {', '.join(names)} as texts, and rows")
    named, known, unit = texts
    table = TunedTable(named, known, unit, {key: _row(path, key, row) for key, row in rows.items()})
    expected = processor or cpu_name(device)
    if (table.device, table.processor) != (device.name, expected):
        raise CompileError(
            f"tuned plans {path} are of {table.device} ({table.processor}), not of {device.name} "
            f"({expected}); tune for that device into a file of its own"
        )
    return table


def _row(path: Path, key: str, content: Any) -> TunedPlan:
    expected = {field.name: field.type for field in fields(TunedPlan)}
    if (
        not isinstance(content, dict)
        or {name: type(value) for name, value in content.items()} != expected
    ):
        raise CompileError(f"tuned plans {path}: the row {key!r} must have {', '.join(expected)}")
    return TunedPlan(**content)


def write_table(table: TunedTable, path: Path) -> None:
    """Write a table atomically, rows sorted; CompileError if that fails."""
    rows = {key: asdict(table.rows[key]) for key in sorted(table.rows)}
    content = {"schema": SCHEMA, "device": table.device, "cpu": table.processor, "unit": table.unit}
    text = json.dumps({**content, "rows": rows}, indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_whole(path, text)
    except OSError as error:
        raise CompileError(f"tuned plans {path} cannot be written: {reason_of(error)}") from error
