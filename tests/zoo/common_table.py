"""Compare each framework's import of the common models with our own ops, and print a table.

Run `bazel run //tests/zoo:common_table`. Each framework runs in its own process with its own
packages.
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

from pockengine.tests.zoo.common import FRAMEWORKS, MODELS

OURS = "reference"
HERE = Path(__file__).absolute().parent


def measured(program: str) -> dict[str, dict[str, Any]]:
    """Run one program; return its measurements by model.

    It runs with its own runfiles, because those of this program contain all frameworks.
    """
    path = (HERE / f"common_{program}").resolve()
    foreign = ("PYTHON", "RUNFILES")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    done = subprocess.run([path], capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"{path.name} failed:\n{done.stderr}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["model"]: line for line in lines}


def tables() -> list[Table]:
    """Return a table per model: errors against our own ops, then kernels of each kind."""
    found = {name: measured(name) for name in (OURS, *FRAMEWORKS)}
    shown = []
    for model in MODELS:
        ours = found[OURS][model]
        kinds = sorted({kind for each in found.values() for kind in each[model]["ops"]})
        table = Table("", "own ops", *FRAMEWORKS, title=model)
        for name in ("logits", "losses"):
            errors = [
                np.abs(np.subtract(found[framework][model][name], ours[name])).max()
                for framework in FRAMEWORKS
            ]
            table.add_row(f"{name}: largest error", "", *(f"{error:.1e}" for error in errors))
        for kind in kinds:
            counts = [str(found[each][model]["ops"].get(kind, 0)) for each in (OURS, *FRAMEWORKS)]
            table.add_row(kind, *counts)
        shown.append(table)
    return shown


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    for printed in tables():
        Console(width=100).print(printed)
