"""Weights from which a comparison means something: a freshly initialised net settled by some steps.

A deep net as it is initialised, with batch norms that normalise by a small batch, is chaotic: two
correct engines that round differently (PyTorch in f32 and in f64, or in its two memory formats) are
1 % apart in their losses after a few steps. After some steps on real pictures the same engines stay
within 1e-5. It is also what fine-tuning is: nobody starts it from random weights.
"""

import hashlib
import os

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from torch import nn

from pockengine.farm.folders import cache_folder
from pockengine.farm.progress import step
from pockengine.farm.references.job import Tensors
from pockengine.models.registry import parse_model

STEPS, BATCH, RATE, MOMENTUM, SEED = 100, 16, 0.05, 0.9, 0


def settled_weights(
    model: str, classes: int, images: NDArray[np.float32], labels: NDArray[np.int64]
) -> Tensors:
    """Return a benchmark model's state_dict after some training steps, made once and then cached.

    `images` [M, C, H, W] and `labels` [M] are any real pictures, M at least 16. The learning rate
    falls linearly to nothing, so that the end is a calm place.
    """
    told = [model, str(classes), torch.__version__, str((STEPS, BATCH, RATE, MOMENTUM, SEED))]
    digest = hashlib.sha256("\n".join(told).encode())
    for array in (images, labels):
        digest.update(np.ascontiguousarray(array).tobytes())
    file = cache_folder() / "settled" / f"{model}-{digest.hexdigest()[:16]}.safetensors"
    if not file.exists():
        with step(f"starting weights: {STEPS} PyTorch steps of {model} at batch {BATCH}"):
            weights = _settle(model, classes, images, labels)
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")
        save_file(weights, partial)
        os.replace(partial, file)
    return load_file(file)


def _settle(
    model: str, classes: int, images: NDArray[np.float32], labels: NDArray[np.int64]
) -> Tensors:
    """Train from PyTorch's initialisation, with a random state of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        module = parse_model(model).build(classes).train()
    optimizer = torch.optim.SGD(module.parameters(), RATE, MOMENTUM)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS)
    generator = np.random.default_rng(SEED)
    for _ in range(STEPS):
        chosen = generator.choice(len(labels), BATCH, replace=False)
        loss = nn.functional.cross_entropy(
            module(torch.from_numpy(images[chosen])), torch.from_numpy(labels[chosen])
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return {name: tensor.numpy().copy() for name, tensor in module.state_dict().items()}
