"""The worker process that fine-tunes language models in MLX, by mlx-lm; see serve.py, lm_job.py.

Model, LoRA layers and loss are those of mlx-lm, and a step is compiled, as its trainer does. AdamW
corrects its bias, as PyTorch's does. In bf16 the whole model is, as mlx-lm loads such weights.
"""

import json
from functools import partial
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.optimizers import AdamW
from mlx.utils import tree_unflatten
from mlx_lm.tuner.lora import LoRALinear
from mlx_lm.tuner.trainer import default_loss
from mlx_lm.utils import load_model
from numpy.typing import NDArray
from safetensors.numpy import load_file

from pockengine.errors import FarmError
from pockengine.farm.references.engines import find_lm_engine
from pockengine.farm.references.job import Tensors
from pockengine.farm.references.lm_job import LmData, LmJob, read_lm_job
from pockengine.farm.references.serve import serve

PREFIX, FACTOR_A, FACTOR_B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
"""Of names in PEFT's files."""


def prepare(data: LmData, engine: str, threads: int) -> "PreparedMlx":
    """Load the job's model from its folder; its BLAS has read `threads` at its start."""
    mx.set_default_device(mx.cpu)
    return PreparedMlx(data, find_lm_engine(engine).dtype == "bf16")


class PreparedMlx:
    """A model with its optimizer, its compiled step and its batches."""

    def __init__(self, data: LmData, bf16: bool) -> None:
        """Load the model; FarmError if it has no parameter that the job trains."""
        self.model = _model(data.job)
        if bf16:
            self.model.set_dtype(mx.bfloat16)
        self.batches = [mx.array(np.asarray(ids)) for ids in data.tokens]
        rows, tokens = self.batches[0].shape
        self.lengths = mx.array([[0, tokens]] * rows)
        rate = data.job.learning_rate
        self.optimizer = AdamW(rate, weight_decay=0.01, bias_correction=True)
        self.state = [self.model.state, self.optimizer.state]
        gradients = nn.value_and_grad(self.model, default_loss)

        @partial(mx.compile, inputs=self.state, outputs=self.state)
        def compiled(batch: mx.array, lengths: mx.array) -> mx.array:
            (loss, _), grads = gradients(self.model, batch, lengths)
            self.optimizer.update(self.model, grads)
            return loss

        self.compiled = compiled

    def step(self, index: int) -> float:
        """Train on one batch and return its loss."""
        loss = self.compiled(self.batches[index], self.lengths)
        mx.eval(self.state, loss)
        return float(np.asarray(loss))

    def predict(self, index: int) -> NDArray[np.float32]:
        """Return the logits of a batch."""
        return np.asarray(self.model(self.batches[index]).astype(mx.float32))

    def tensors(self) -> Tensors:
        """Return nothing: the losses of later batches verify the weights."""
        return {}


def _model(job: LmJob) -> nn.Module:
    model = load_model(Path(job.model))[0]
    if job.adapters is not None:
        model.freeze()
        _insert_adapters(model, Path(job.adapters))
    elif job.trainable is not None:
        model.freeze()
        modules = dict(model.named_modules())
        for name in job.trainable:
            owner, _, key = name.rpartition(".")
            if owner not in modules or key not in modules[owner]:
                raise FarmError(f"the model has no parameter {name!r}; it was to be trained")
            modules[owner].unfreeze(keys=[key], recurse=False)
    return model.train()


def _insert_adapters(model: nn.Module, folder: Path) -> None:
    """Replace the linear layers that a PEFT folder adapts by mlx-lm's, with its factors."""
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    factors = load_file(folder / "adapter_model.safetensors")
    modules, rank = dict(model.named_modules()), config["r"]
    scale = config["lora_alpha"] / (rank**0.5 if config.get("use_rslora") else rank)
    for name, a in factors.items():
        if not name.endswith(FACTOR_A):
            continue
        owner = name.removeprefix(PREFIX).removesuffix(FACTOR_A)
        layer = LoRALinear.from_base(modules[owner], r=rank, dropout=0.0, scale=scale)
        layer.lora_a = mx.array(np.ascontiguousarray(a.T))
        b = factors[name.replace(FACTOR_A, FACTOR_B)]
        layer.lora_b = mx.array(np.ascontiguousarray(b.T))
        model.update_modules(tree_unflatten([(owner, layer)]))


if __name__ == "__main__":
    serve(f"{version('mlx')}, mlx-lm {version('mlx-lm')}", prepare, read_lm_job)
