"""Whole trainings with the sanitized runner, compared with the oracle at every step."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pockengine.backends.rate_schedule import RateSchedule
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.tests.backends.c.programs import build_sanitized
from pockengine.tests.backends.c.runner import as_rows

RATE = 0.05


def check_training(
    graph: Graph, training: Training, batches: Mapping[str, np.ndarray], folder: Path
) -> Program:
    """Train on batches [steps, ...] in two threads; losses and weights must equal the oracle's."""
    runner, program = build_sanitized(graph, folder, training=training)
    state = {name: param.data.copy() for name, param in program.params.items()}
    weights, data, saved = (folder / name for name in ("weights", "data", "saved"))
    save_file({**state, **program.constants}, weights)
    save_file(as_rows(batches), data)
    steps = len(next(iter(batches.values())))
    command = [str(runner), "train", "--weights", str(weights), "--data", str(data)]
    command += ["--steps", str(steps), "--lr", str(RATE), "--threads", "2", "--save", str(saved)]
    command += ["--save-whole", "--schedule", "step", "--factor", "0.3", "--period", "3"]
    rate = RateSchedule("step", RATE, steps, factor=0.3, period=3)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr[:3000]
    records = [json.loads(line) for line in done.stdout.splitlines()]
    for index in range(steps):
        step = np.asarray(1 + index // training.micro_batches, np.int32)
        seed = np.asarray(index + 1, np.int32)  # of the runner's seed 0
        controls = {"lr": np.float32(rate(int(step))), "step": step, "seed": seed}
        inputs = {name: array[index] for name, array in batches.items()}
        expected = run(program.entries["train"].graph, {**inputs, **controls}, state)["loss"]
        assert records[index]["loss"] == pytest.approx(float(expected), rel=2e-5)
        if "update" in program.entries and (index + 1) % training.micro_batches == 0:
            run(program.entries["update"].graph, controls, state)
    found = load_file(saved)
    for name, array in state.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=5e-6, err_msg=name)
    return program
