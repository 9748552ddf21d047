"""Ten steps of LoRA on a decoder from a folder: ours in NumPy, and PEFT's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.scalars import DType
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.passes.forward.add_noise import EmbeddingNoise
from pockengine.compiler.sparse.lora import Adapter
from pockengine.compiler.storage import EXACT, Storage
from pockengine.models.causal_lm import open_causal_lm

STEPS, RATE, LENGTH = 10, 0.1, 12


@dataclass(frozen=True)
class Tuned:
    """Losses of a training, its adapters, their initial values, and other trained parameters."""

    losses: Sequence[float]
    adapters: Sequence[Adapter]
    start: Mapping[str, np.ndarray]
    whole: Sequence[str]
    stored: Mapping[str, DType]


def batches() -> list[dict[str, torch.Tensor]]:
    """Return batches of two texts."""
    torch.manual_seed(1)
    ids = [torch.randint(5, 60, (2, LENGTH)) for _ in range(STEPS)]
    positions = torch.arange(LENGTH).repeat(2, 1)
    return [{"input_ids": x, "labels": x, "position_ids": positions} for x in ids]


def ours(
    folder: Path,
    scheme: Any = "lora",
    storage: Storage = EXACT,
    noise: EmbeddingNoise | None = None,
) -> Tuned:
    """Train a folder's decoder."""
    graph = open_causal_lm(folder).graph(2, LENGTH)
    training = Training(scheme=scheme, optimizer=Sgd(), storage=storage, noise=noise)
    program = compile_program(graph, training)
    step = program.entries["train"].graph
    params = {name: param.data.copy() for name, param in step.params.items()}
    factors = {name for one in program.adapters for name in one.trained}
    start = {name: params[name].copy() for name in factors}
    controls = {"lr": np.asarray(RATE, np.float32), "seed": np.asarray(0, np.int32)}
    needed = {value.name for value in step.inputs}
    losses = []
    for batch in batches():
        feed = {**{name: tensor.numpy() for name, tensor in batch.items()}, **controls}
        inputs = {name: array for name, array in feed.items() if name in needed}
        losses.append(float(run(step, inputs, params)["loss"]))
    return Tuned(
        losses,
        program.adapters,
        start,
        whole=[name for name in program.scheme if name not in factors],
        stored={name: param.value.dtype for name, param in step.params.items()},
    )


def of_peft(module: Any, tuned: Tuned) -> list[float]:
    """Train a module with PEFT from the same factors; return its losses."""
    module.requires_grad_(False)
    names = [one.weight.removesuffix(".weight") for one in tuned.adapters]
    (rank,), (alpha,) = (
        {one.rank for one in tuned.adapters},
        {one.alpha for one in tuned.adapters},
    )
    variants = {"use_dora": tuned.adapters[0].dora, "use_rslora": tuned.adapters[0].rslora}
    config = peft.LoraConfig(
        r=rank, lora_alpha=alpha, target_modules=names, lora_dropout=0.0, **variants
    )
    model = peft.get_peft_model(module, config).train()
    for name in tuned.whole:
        module.get_parameter(name).requires_grad_(True)
    with torch.no_grad():
        for adapter, name in zip(tuned.adapters, names, strict=True):
            factor = module.get_submodule(name).lora_A["default"].weight
            factor.copy_(torch.from_numpy(tuned.start[adapter.a].T))
    optimizer = torch.optim.SGD([x for x in model.parameters() if x.requires_grad], RATE)
    losses = []
    for batch in batches():
        optimizer.zero_grad()
        loss = model(**batch, use_cache=False).loss
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses
