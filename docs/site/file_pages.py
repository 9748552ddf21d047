"""Reference pages of files: devices and records, with their fields and an example."""

import ast

from pockengine.devices import known_devices, load_device
from pockengine.devices.schema import FOLDER
from pockengine.docs.site.python_pages import fields_page
from pockengine.docs.site.sources import ROOT, parse
from pockengine.docs.site.tables import table

DEVICES = "Device", "Cpu", "ToolchainSpec", "Emulator", "Gpu"
EXAMPLE = "rpi4"
RESULTS = "rpi4.jsonl"


def devices_page() -> str:
    """Return the page of device files: those that are known, an example, the fields."""
    found = {name: load_device(name) for name in known_devices()}
    rows = [(f"`{name}`", one.description, one.backend) for name, one in found.items()]
    example = (FOLDER / f"{EXAMPLE}.toml").read_text(encoding="utf-8")
    return fields_page(
        "Device files",
        "A device is one TOML file in `devices/`, or any file whose path is given. Its tables "
        "`[cpu]`, `[toolchain]`, `[emulator]` and `[gpu]` have the fields of `Cpu`, "
        "`ToolchainSpec`, `Emulator` and `Gpu`. `pockengine devices` lists those known:\n\n"
        f"{table(('device', 'description', 'backend'), rows)}\n"
        f"`devices/{EXAMPLE}.toml`:\n```toml\n{example}```",
        "pockengine.devices.schema",
        DEVICES,
    )


def records_page() -> str:
    """Return the page of records: their form, an example, the fields, the metrics."""
    lines = (ROOT / "docs" / "results" / RESULTS).read_text(encoding="utf-8").splitlines()
    metrics = [(f"`{name}`", unit) for name, unit in _units().items()]
    fields = fields_page(
        "Records",
        "Every measurement is one JSON object on one line. Commands that measure write it by "
        "`--json FILE`, and the database of results stores it. The files in `docs/results` also "
        "name the `cpu` and the `command`:\n"
        f"```json\n{lines[0]}\n```",
        "pockengine.farm.results.results",
        ("Record",),
    )
    return f"{fields}\n## Metrics\n\n{table(('metric', 'unit'), metrics)}"


def _units() -> dict[str, str]:
    """Return the unit of each metric, without the packages that the farm needs."""
    for node in parse("pockengine.farm.results.setup").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "UNITS":
            return dict(ast.literal_eval(node.value))
    raise LookupError("farm/results/setup.py defines no UNITS")
