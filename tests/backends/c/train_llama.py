"""Train adapters of a LLaMA with random weights; print sizes, time per step and peak memory.

`python -m pockengine.tests.backends.c.train_llama --layers=22 --frozen-weights=int4`

The default sizes are those of TinyLlama with as many key heads as query heads: 1.3 billion params.
"""

import argparse
import resource
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np

from pockengine.backends.artifact import Artifact, load_artifact, write_artifact
from pockengine.backends.registry import backend_for, open_session
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Value
from pockengine.compiler.ir.contents import Lazy
from pockengine.compiler.ir.types import f32
from pockengine.compiler.optim import Adam
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.compiler.sparse.lora import lora
from pockengine.compiler.storage import Storage
from pockengine.devices import load_device
from pockengine.tests.compiler.small_nets import NetBuilder
from pockengine.tests.compiler.transformers import Sizes, llama_net

TARGETS = ("*.self_attn.q_proj.weight", "*.self_attn.v_proj.weight")
RANK, RATE = 8, 1e-3
MIB = 2**20


class LazyBuilder(NetBuilder):
    """Adds layers whose random weights are drawn by name at each read."""

    def weight(self, name: str, *shape: int, shift: float = 0.0) -> Value:
        """Declare a weight whose products keep the scale of their input."""

        def draw() -> np.ndarray:
            rng = np.random.default_rng(zlib.crc32(name.encode()))
            drawn = rng.standard_normal(shape, np.float32) * np.float32(shape[0] ** -0.5)
            return np.asarray(np.float32(shift) + (0 if shift else 1) * drawn, np.float32)

        return self.g.param(name, Lazy(f32(*shape), draw, name))


def compiled(sizes: Sizes, tokens: int, storage: Storage) -> Program:
    """Plan the step: LoRA on queries and values, Adam."""
    graph = llama_net(1, tokens, sizes, LazyBuilder("llama"))
    backend = backend_for(load_device("host"))
    training = Training(lora(RANK, 16.0, TARGETS), Adam(), storage=storage)
    return compile_program(graph, training, target=backend.target())


def train(artifact: Artifact, sizes: Sizes, tokens: int, steps: int) -> tuple[list[float], float]:
    """Return losses, and the seconds of the fastest step."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, sizes.vocabulary, tokens)
    feed = {"input_ids": ids[None], "labels": np.roll(ids, -1)}
    losses, times = [], []
    with open_session(artifact, threads=2) as session:
        for _ in range(steps):
            started = time.perf_counter()
            losses.append(float(session.train_step(feed, RATE)["loss"]))
            times.append(time.perf_counter() - started)
    return losses, min(times)


def _peak() -> float:
    """Return this process's largest resident memory so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in Sizes(22, 2048, 32, 5632, 32000).__dict__.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--frozen-weights", default="int4")
    parser.add_argument("--saved-activations", default="f32")
    parser.add_argument("--artifact", type=Path, help="Write it there, or train what is there.")
    return parser.parse_args()


def main() -> None:
    """Compile unless there is an artifact, train, and print the measurements."""
    arguments = _parsed()
    sizes = Sizes(
        arguments.layers, arguments.hidden, arguments.heads, arguments.ffn, arguments.vocabulary
    )
    folder = arguments.artifact or Path(tempfile.mkdtemp()) / "llama"
    if not folder.exists():
        program = compiled(
            sizes, arguments.tokens, Storage(arguments.frozen_weights, arguments.saved_activations)
        )
        stored = sum(param.value.type.nbytes for param in program.params.values())
        print(f"params {stored / MIB:.0f} MiB, arena {program.arena_bytes / MIB:.0f} MiB")
        artifact = write_artifact(program, backend_for(load_device("host")), folder)
        print(
            f"written to {folder}, peak of compiling {_peak():.0f} MiB: run again to see training's"
        )
    else:
        artifact = load_artifact(folder)
    losses, seconds = train(artifact, sizes, arguments.tokens, arguments.steps)
    print(f"losses {losses[0]:.4f} to {losses[-1]:.4f}, {seconds:.1f} s a step")
    print(f"peak memory {_peak():.0f} MiB")


if __name__ == "__main__":
    main()
