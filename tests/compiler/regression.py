"""A small regression for every optimizer, run by the oracle."""

from typing import Any

import numpy as np

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.options import Training

RATE = 0.05
STEPS = 12
FACTORS = (1.0, 0.1, 0.1, 2.0, 1.0, 0.5, 0.01, 1.5, 1.0, 0.3, 0.7, 1.0)
"""Each step's rate, relative to `RATE`."""


def rate(step: Any) -> Any:
    """Return the rate of a step, counted from 0. It rises and falls like a schedule's."""
    return RATE * np.asarray(FACTORS, np.float32)[step]


def regression() -> Graph:
    """loss = mean((x w + b - y)^2), with a weight that PyTorch stores transposed."""
    g = Builder(Graph("regression"))
    rng = np.random.default_rng(0)
    x = g.input("x", TensorType(F32, (8, 5)))
    y = g.input("y", TensorType(F32, (8, 3)))
    w = g.param("w", rng.standard_normal((5, 3)).astype(np.float32), permutation=(1, 0))
    b = g.param("b", rng.standard_normal(3).astype(np.float32))
    error = g.sub(g.add(g.matmul(x, w), b), y)
    g.output("loss", g.reduce_mean(g.square(error), axes=(0, 1)))
    return g.graph


def data(step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    return {
        "x": rng.standard_normal((8, 5)).astype(np.float32),
        "y": rng.standard_normal((8, 3)).astype(np.float32),
    }


def ours(training: Training, steps: int = STEPS) -> dict[str, np.ndarray]:
    program = compile_program(regression(), training, check=True)
    params = {name: param.data.copy() for name, param in program.params.items()}
    for step in range(steps):
        update = step // training.micro_batches
        scalars = {"lr": np.float32(rate(update)), "step": np.asarray(update + 1, np.int32)}
        run(program.entries["train"].graph, {**data(step), **scalars}, params)
        if training.micro_batches > 1 and (step + 1) % training.micro_batches == 0:
            run(program.entries["update"].graph, scalars, params)
    return params


def assert_same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    for name, array in theirs.items():
        np.testing.assert_allclose(ours[name], array, rtol=2e-5, atol=2e-6)
