"""The built runner for tests: arguments are files, results its JSON lines."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from pockengine.compiler.program import Program
from pockengine.tests.backends.c.programs import build_sanitized, point_graph

Arrays = dict[str, np.ndarray]
RATE = 0.1


@dataclass(frozen=True)
class Runner:
    """The built runner with sound weights and data to start from."""

    path: Path
    program: Program
    weights: Path
    data: Path

    def call(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [str(self.path), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def train(self, steps: int, *more: object, **files: Path) -> subprocess.CompletedProcess[str]:
        weights, data = files.get("weights", self.weights), files.get("data", self.data)
        fixed = ("--weights", weights, "--data", data, "--steps", steps, "--lr", RATE)
        return self.call("train", *fixed, *more)


def point_runner(folder: Path) -> Runner:
    """Build a tiny training of points under sanitizers, with weights and three batches."""
    path, program = build_sanitized(point_graph(), folder)
    weights, data = folder / "weights.safetensors", folder / "data.safetensors"
    save_file({**initial(program), **program.constants}, weights)
    batches = np.random.default_rng(0).standard_normal((3, 300)).astype(np.float32)
    save_file(as_rows({"x": batches}), data)
    return Runner(path, program, weights, data)


def as_rows(batches: Mapping[str, np.ndarray]) -> Arrays:
    """Data in the runner's form, from arrays [batches, B, ...]; numbers [batches] stay."""
    return {
        name: array.reshape(-1, *array.shape[2:]) if array.ndim > 1 else array
        for name, array in batches.items()
    }


def initial(program: Program) -> Arrays:
    return {name: param.data.copy() for name, param in program.params.items()}


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
