"""What the bench trains: a model on real photographs, from weights where comparing means something.

A net as it is initialised, with batch norms that normalise by four pictures, is chaotic: PyTorch
differs from itself in another memory format by 7 % in the tenth loss. Here every batch norm starts
with a bias of 2, the middle of ReLU6: the gates are open, rounding is not amplified, and PyTorch
agrees with itself within 1e-6. It is a start like any other, given to every engine alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pockengine.api import Compiled
from pockengine.api import compile as compile_model
from pockengine.compiler.compile import find_scheme
from pockengine.compiler.ir import Graph
from pockengine.compiler.optim import Sgd
from pockengine.farm.photos import CLASSES, photo_batches
from pockengine.farm.references.job import Job, JobData
from pockengine.models.registry import parse_model

if TYPE_CHECKING:
    from torch import nn

RATE, MOMENTUM, WEIGHT_DECAY = 1e-3, 0.9, 1e-4
OPEN_BIAS = 2.0
SEED = 0
DATASET = "scikit-learn sample photographs"


@dataclass(frozen=True)
class Case:
    """A model with its data: `data.job` trains everything; `for_scheme` gives one that does not."""

    model: str
    graph: Graph
    data: JobData

    @property
    def batch(self) -> int:
        """Pictures of a step."""
        return int(self.data.images.shape[1])

    def for_scheme(self, scheme: str) -> JobData:
        """Return the same job, training only what a scheme names (a preset or a TOML file)."""
        resolved = find_scheme(scheme, self.graph).resolve(self.graph)
        trainable = {
            name: None if channels is None else (channels.start, channels.stop)
            for name, channels in resolved.items()
        }
        return replace(self.data, job=replace(self.data.job, trainable=trainable))

    def compile(self, scheme: str, device: str, folder: Path) -> Compiled:
        """Compile and build for a device; the artifact goes to `folder`."""
        optimizer = Sgd(momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
        return compile_model(
            self.graph, (), optimizer=optimizer, scheme=scheme, device=device, folder=folder
        )


def make_case(model: str, batch: int, steps: int) -> Case:
    """Build a benchmark model, its starting weights and its photographs; all by a fixed seed."""
    import torch

    from pockengine.frontends import from_torch

    name = parse_model(model)
    torch.manual_seed(SEED)
    module = name.build(CLASSES).train()
    _open_gates(module)
    photos = photo_batches(steps, batch, name.resolution)
    # Exporting runs the model once, which must not move the running statistics it starts from.
    weights = {key: np.array(tensor) for key, tensor in module.state_dict().items()}
    graph = from_torch(module, (torch.from_numpy(photos.images[0]),), loss="cross_entropy")
    job = Job(
        str(name),
        classes=CLASSES,
        learning_rate=RATE,
        momentum=MOMENTUM,
        weight_decay=WEIGHT_DECAY,
    )
    return Case(str(name), graph, JobData(job, weights, photos.images, photos.labels))


def to_torch_layout(graph: Graph, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the model's own tensors of a checkpoint in PyTorch's order of dimensions."""
    found = {}
    for name, param in graph.params.items():
        if name in tensors:
            order = param.permutation
            array = tensors[name]
            found[name] = array if order is None else array.transpose(np.argsort(order))
    return found


def _open_gates(module: "nn.Module") -> None:
    from torch import nn

    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.constant_(layer.bias, OPEN_BIAS)
