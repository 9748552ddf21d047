"""A decoder of a known shape with random weights, compiled for LoRA, and rows for the runner."""

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
MB = 10**6


@dataclass(frozen=True)
class LmCase:
    """A decoder by its name, with tokens per row; a step has one row.

    `weights` is the storage of frozen weights, `budget_mb` bounds the arena.
    """

    model: str
    tokens: int
    weights: str
    budget_mb: int | None

    def __str__(self) -> str:
        bound = "" if self.budget_mb is None else f", arena within {self.budget_mb} MB"
        return f"{self.model}, {self.tokens} tokens, {self.weights}{bound}"


def compile_adapters(case: LmCase, folder: Path) -> None:
    """Compile adapters of rank 8 of all seven matrices of each block."""
    graph = shapes_graph(shapes_of(case.model), 1, case.tokens)
    predict_one_token(graph, 1, case.tokens)
    for name, param in graph.params.items():
        if not param.contents.known:
            type_ = param.value.type
            param.contents = Lazy(type_, partial(_drawn, name, type_.shape), name)
    options = CompileOptions(
        scheme=lora(RANK, 2.0 * RANK, MATRICES),
        optimizer=AdamW(),
        storage=Storage(weights=case.weights, activations="bf16"),
        memory_budget=None if case.budget_mb is None else case.budget_mb * MB,
        outputs=SUPERVISED.outputs,
    )
    compile(graph, None, options=options, folder=folder, check=False)


def _drawn(name: str, shape: Sequence[int]) -> np.ndarray:
    """Return an initial weight as in transformers: norms are one, biases zero, others normal."""
    if len(shape) == 1:
        return np.full(shape, 0.0 if name.endswith("bias") else 1.0, np.float32)
    random = np.random.default_rng(zlib.crc32(name.encode()))
    return random.standard_normal(shape, np.float32) * np.float32(SPREAD)


def write_rows(case: LmCase, steps: int, path: Path) -> None:
    """Write rows of drawn tokens, one a step."""
    config = shapes_of(case.model).config
    random = np.random.default_rng(0)
    ids = random.integers(0, config.vocab_size, (steps, case.tokens), np.int64)
    positions = np.broadcast_to(np.arange(case.tokens, dtype=np.int64), ids.shape)
    save_file(
        {"input_ids": ids, "labels": ids.copy(), "position_ids": np.ascontiguousarray(positions)},
        path,
    )
