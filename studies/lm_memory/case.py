"""A decoder of a known shape and drawn weights, compiled for LoRA, and rows for the runner."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from pockengine import AdamW, CompileOptions, Storage, compile, lora
from pockengine.compiler.ir.contents import Lazy
from pockengine.finetune.lm.methods import SUPERVISED
from pockengine.finetune.lm.next_token import predict_one_token
from pockengine.models.causal_lm import shapes_graph
from pockengine.models.decoders import shapes_of

SPREAD = 0.02
MATRICES = (
    *("*.q_proj.weight", "*.k_proj.weight", "*.v_proj.weight", "*.o_proj.weight"),
    *("*.gate_proj.weight", "*.up_proj.weight", "*.down_proj.weight"),
)
RANK = 8


@dataclass(frozen=True)
class LmShape:
    """A decoder by its name, with tokens per row; a step has one row."""

    model: str
    tokens: int


def compile_adapters(shape: LmShape, storage: Storage, budget: int | None, folder: Path) -> None:
    """Compile adapters of rank 8 of all seven matrices of each block; `budget` bounds the arena."""
    graph = shapes_graph(shapes_of(shape.model), 1, shape.tokens)
    predict_one_token(graph, 1, shape.tokens)
    for name, param in graph.params.items():
        if not param.contents.known:
            type_ = param.value.type
            param.contents = Lazy(type_, partial(_drawn, name, type_.shape), name)
    options = CompileOptions(
        scheme=lora(RANK, 2.0 * RANK, MATRICES),
        optimizer=AdamW(),
        storage=storage,
        memory_budget=budget,
        outputs=SUPERVISED.outputs,
    )
    compile(graph, None, options=options, folder=folder, check=False)


def _drawn(name: str, shape: Sequence[int]) -> np.ndarray:
    """Return a weight as transformers begin: norms at one, biases at zero, others normal."""
    if len(shape) == 1:
        return np.full(shape, 0.0 if name.endswith("bias") else 1.0, np.float32)
    random = np.random.default_rng(zlib.crc32(name.encode()))
    return random.standard_normal(shape, np.float32) * np.float32(SPREAD)


def write_rows(shape: LmShape, steps: int, path: Path) -> None:
    """Write rows of drawn tokens, one a step."""
    config = shapes_of(shape.model).config
    random = np.random.default_rng(0)
    ids = random.integers(0, config.vocab_size, (steps, shape.tokens), np.int64)
    positions = np.broadcast_to(np.arange(shape.tokens, dtype=np.int64), ids.shape)
    save_file(
        {"input_ids": ids, "labels": ids.copy(), "position_ids": np.ascontiguousarray(positions)},
        path,
    )
