"""Print one model, four doors: what each framework's import of the same model comes to.

Run `bazel run //tests/doors:table`. Each door runs in a process and an environment of its own.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pockengine.tests.doors.spec import DOORS, MODELS

OURS = "reference"
HERE = Path(__file__).absolute().parent


def measured(door: str) -> dict[str, dict[str, Any]]:
    """Run one door; return what it measured, by model.

    It is run where it was built, beside runfiles of its own: those of this program hold all
    frameworks at once.
    """
    program = (HERE / (door if door == OURS else f"{door}_door")).resolve()
    foreign = ("PYTHON", "RUNFILES")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    done = subprocess.run([program], capture_output=True, text=True, env=kept, check=False)
    if done.returncode:
        sys.exit(f"the door {door} failed:\n{done.stderr}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["model"]: line for line in lines}


def tables() -> list[Table]:
    """Return a table for each model: errors against our own ops, then kernels of each kind."""
    found = {door: measured(door) for door in (OURS, *DOORS)}
    shown = []
    for model in MODELS:
        ours = found[OURS][model]
        kinds = sorted({kind for each in found.values() for kind in each[model]["ops"]})
        table = Table("", "own ops", *DOORS, title=model)
        for name in ("logits", "losses"):
            errors = [
                np.abs(np.subtract(found[door][model][name], ours[name])).max() for door in DOORS
            ]
            table.add_row(f"{name}: largest error", "", *(f"{error:.1e}" for error in errors))
        for kind in kinds:
            counts = [str(found[door][model]["ops"].get(kind, 0)) for door in (OURS, *DOORS)]
            table.add_row(kind, *counts)
        shown.append(table)
    return shown


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    for printed in tables():
        Console(width=100).print(printed)
