"""Compile a model of LLaMA2-7B's shape, without weights; print the time and the memory.

`python -m pockengine.tests.compiler.compile_llama --layers=32`
"""

import argparse
import resource
import time
from dataclasses import replace

from pockengine.backends.c.backend import CBackend
from pockengine.backends.native.program import generate
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph
from pockengine.compiler.optim import Adam
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.compiler.sparse.lora import lora
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.devices import load_device
from pockengine.tests.compiler.small_nets import ShapeBuilder
from pockengine.tests.compiler.transformers import LLAMA2_7B, llama_net

DEVICE = "jetson-orin"
LORA_RANK = 8


def graph_of(layers: int, length: int = 128) -> Graph:
    """The forward graph with this many layers."""
    return llama_net(1, length, replace(LLAMA2_7B, layers=layers), ShapeBuilder("llama2"))


def scheme_of(layers: int) -> Scheme:
    """Train adapters on queries and values; in the last layer, train the whole projections."""
    parts = [f"self_attn.{part}_proj.weight" for part in "qv"]
    targets = [f"model.layers.{i}.{part}" for i in range(layers - 1) for part in parts]
    last = f"model.layers.{layers - 1}"
    trained = [f"{last}.self_attn.o_proj.weight", f"{last}.*norm.weight", "model.norm.weight"]
    return lora(LORA_RANK, 16.0, targets, trained, name="lora-and-last")


def compile_llama(layers: int) -> tuple[Program, dict[str, str]]:
    """Compile, plan and generate C."""
    backend = CBackend(load_device(DEVICE))
    training = Training(scheme_of(layers), Adam())
    program = compile_program(graph_of(layers), training, target=backend.target())
    return program, generate(program, backend)


def main() -> None:
    """Print the time, the peak memory, and the size of the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=LLAMA2_7B.layers)
    layers = parser.parse_args().layers
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    program, files = compile_llama(layers)
    taken = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    weights = sum(param.value.type.nbytes for param in program.params.values())
    train = program.entries["train"]
    print(f"{layers} layers: {taken:.1f} s of CPU, peak {peak / 1024:.0f} MB (")
    print(f"  {before / 1024:.0f} MB before), weights {weights / 2**30:.2f} GiB, never loaded")
    print(f"  {len(train.graph.nodes)} nodes in train, arena {program.arena_bytes / 2**20:.0f} MiB")
    print(f"  {sum(map(len, files.values())) / 2**20:.2f} MiB of C in {len(files)} files")


if __name__ == "__main__":
    main()
