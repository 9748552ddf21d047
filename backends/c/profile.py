"""Where a training step's time goes: every kernel of a program, timed in place.

The program is built once more with its calls timed; the kernels' objects come from the cache.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from pockengine.backends.c.backend import CBackend, anchor_op
from pockengine.backends.c.build import build, copy_runtime
from pockengine.backends.c.program import generate
from pockengine.backends.capacity import check_capacity
from pockengine.backends.placement import describe, kernel_nodes, lay_out, node_bytes
from pockengine.backends.protocol import Progress
from pockengine.backends.weights import write_weights
from pockengine.compiler.ir import Node
from pockengine.compiler.ops import node_cost
from pockengine.compiler.program import Program
from pockengine.errors import RuntimeFailure

RATE = 1e-3
"""Learning rate of the profiled steps: small, so that they stay typical."""


@dataclass(frozen=True)
class KernelTime:
    """One kernel call of a step: its times over all steps but the first, and the work it must do.

    `nbytes` is the traffic, were every operand read and every result written once.
    """

    op: str
    symbol: str
    what: str
    node: Node
    samples: int
    least_ns: int
    median_ns: int
    most_ns: int
    multiply_adds: int
    nbytes: int


def profile_step(
    program: Program,
    backend: CBackend,
    inputs: Mapping[str, np.ndarray],
    *,
    threads: int = 1,
    steps: int = 20,
    progress: Progress | None = None,
) -> list[KernelTime]:
    """Time the kernels of `train` on this machine, in their order, on one batch again and again."""
    check_capacity(program, backend.target())
    with tempfile.TemporaryDirectory(prefix="pockengine-profile-") as place:
        folder = Path(place)
        for name, text in generate(program, backend).items():
            head = "#define PE_PROFILE 1\n" if name == "program.c" else ""
            (folder / name).write_text(head + text, encoding="utf-8")
        copy_runtime(folder / "runtime")
        runner = build(folder, backend.device, folder / "bin", progress).executable
        weights, data = folder / "weights", folder / "data"
        write_weights(lay_out(program).in_file, weights)
        save_file({name: np.atleast_1d(array) for name, array in inputs.items()}, data)
        command = [str(runner), "train", "--weights", str(weights), "--data", str(data)]
        command += ["--steps", str(steps + 1), "--lr", str(RATE), "--threads", str(threads)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeFailure(f"profiling {program.name}: {done.stderr.strip()}")
    lines = (json.loads(line) for line in done.stdout.splitlines())
    return list(_times(program, backend, lines))


def _times(
    program: Program, backend: CBackend, lines: Iterable[Mapping[str, int]]
) -> Iterable[KernelTime]:
    entries = program.entries.values()
    nodes = [(node, entry.choices.get(node)) for entry in entries for node in kernel_nodes(entry)]
    for line in lines:
        if "kernel" in line:
            node, choice = nodes[line["kernel"]]
            yield KernelTime(
                op=anchor_op(node) or "elementwise",
                symbol=backend.kernel(node, choice).symbol,
                what=describe(node),
                node=node,
                samples=line["samples"],
                least_ns=line["least_ns"],
                median_ns=line["median_ns"],
                most_ns=line["most_ns"],
                multiply_adds=node_cost(node),
                nbytes=node_bytes(node),
            )
