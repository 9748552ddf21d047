"""The bench's workload: a model on real photographs, from weights that make losses comparable.

A freshly initialized net whose batch norms see four pictures is chaotic: PyTorch's tenth loss
differs by 7 % between two memory formats. Here every batch norm starts with a bias of 2, near the
middle of ReLU6: rounding is not amplified, and PyTorch agrees with itself within 1e-6. All engines
start from the same weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pockengine.api import compile as compile_model
from pockengine.backends.capacity import check_capacity
from pockengine.backends.protocol import Progress
from pockengine.backends.registry import backend_for
from pockengine.compiled import Compiled
from pockengine.compiler.autodiff import Channels
from pockengine.compiler.compile import compile_program, find_scheme
from pockengine.compiler.ir import Graph
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.quantize.int8 import Int8
from pockengine.compiler.sparse.lora import with_adapters
from pockengine.devices import load_device
from pockengine.errors import FarmError
from pockengine.farm.bench.photos import CLASSES, photo_batches
from pockengine.farm.bench.schemes import listed_model, scheme_for
from pockengine.farm.references.job import JobData, TrainingJob
from pockengine.models.registry import ModelName, parse_model
from pockengine.models.rows import check_rows
from pockengine.options import CompileOptions

if TYPE_CHECKING:
    from torch import nn

RATE, MOMENTUM, WEIGHT_DECAY = 1e-3, 0.9, 1e-4
# At the common rate a ResNet's loss diverges in every engine.
PLAIN_RATES = {"resnet50": 1e-4}
OPEN_BIAS = 2.0
SEED = 0
REPEATED = 4
"""Batches that a board trains on in turns: the loss of rows that it has seen falls.

With fewer, rounding is amplified: where the start moves by 1e-7, weights of PyTorch itself end 9e-4
away with two batches, and 4e-6 with four.
"""
DATASET, TOKENS = "scikit-learn sample photographs", "drawn tokens"


@dataclass(frozen=True)
class Case:
    """A model with its data: `data.job` trains everything; `for_scheme` returns one that does not.

    Schemes are presets or files; `sparse` is the one of the model.
    """

    model: str
    graph: Graph
    data: JobData

    @property
    def batch(self) -> int:
        """Pictures of a step."""
        return int(self.data.images.shape[1])

    def learned(self, losses: Sequence[float]) -> str:
        """Describe how the loss of the training batches has changed."""
        count = REPEATED
        if len(losses) < 2 * count:
            return f"loss {losses[0]:.4f}"
        first, last = (sum(part) / count for part in (losses[:count], losses[-count:]))
        return f"mean loss of the same {count * self.batch} rows {first:.4f} to {last:.4f}"

    def scheme(self, name: str) -> str:
        """Return a scheme as the compiler finds it."""
        return scheme_for(name, self.model)

    def for_scheme(self, scheme: str) -> JobData:
        """Return the same job with only a scheme's parameters trainable.

        FarmError for a set of channels with gaps, as the references train ranges, and for adapters.
        """
        found = find_scheme(self.scheme(scheme), self.graph)
        _, resolved, adapters = with_adapters(self.graph, found)
        if adapters:
            raise FarmError(
                f"scheme {scheme} trains {len(adapters)} adapters, which the bench's references do "
                "not have; `pockengine profile` times such a step"
            )
        trainable = {name: _range_of(name, channels) for name, channels in resolved.items()}
        return replace(self.data, job=replace(self.data.job, trainable=trainable))

    def compile(
        self,
        options: CompileOptions,
        folder: Path,
        *,
        int8: bool = False,
        progress: Progress | None = None,
    ) -> Compiled:
        """Compile and build with some options and the job's optimizer, into `folder`.

        In int8 the ranges are those of the job's own pictures; they arrive as integers where the
        device is a microcontroller, else as f32, which the program rounds.
        """
        return compile_model(
            *(self.graph, ()),
            options=options,
            optimizer=self._optimizer(),
            scheme=self.scheme(str(options.scheme)),
            quantize=self._integers(str(options.device)) if int8 else None,
            folder=folder,
            progress=progress,
        )

    def plan(self, scheme: str, device: str, int8: bool) -> None:
        """Plan a step's memory, building nothing; CapacityError where it does not fit a device."""
        target = backend_for(load_device(device)).target()
        how = self._integers(device) if int8 else None
        graph = self.graph if how is None else how.apply(self.graph)[0]
        training = Training(self.scheme(scheme), self._optimizer())
        if how is not None:
            training = replace(training, integers=how.integers())
        check_capacity(compile_program(graph, training, target=target), target)

    def _optimizer(self) -> Sgd:
        return Sgd(momentum=self.data.job.momentum, weight_decay=self.data.job.weight_decay)

    def _integers(self, device: str) -> Int8:
        name = self.graph.inputs[0].name
        pictures = self.data.images.reshape(-1, *self.data.images.shape[2:])
        return Int8({name: pictures}, inputs=(name,) if load_device(device).freestanding else ())


def _range_of(name: str, channels: Channels) -> tuple[int, int] | None:
    """Return the first and last + 1 of some channels; None for all."""
    if channels is None or isinstance(channels, range):
        return None if channels is None else (channels.start, channels.stop)
    raise FarmError(
        f"{name} trains {len(channels)} channels with gaps between; the bench's references train "
        "ranges of channels only: name a share or [start, stop] without `by` or `channels`"
    )


def dataset_of(model: str) -> str:
    """Return the name in records of a listed model's data."""
    return TOKENS if parse_model(model).known.vocabulary else DATASET


def make_case(
    model: str, batch: int, steps: int, plain: bool = False, schemes: Sequence[str] = ()
) -> Case:
    """Build a benchmark model, its starting weights and its data; all by a fixed seed.

    Pictures are photographs, tokens are drawn. `plain` takes the model's own number of classes and
    an SGD without momentum or decay, which every engine has. A scheme of `schemes` that the model
    cannot train by is refused before any data is read.
    """
    import torch

    from pockengine.frontends.torch.model import from_torch

    name = listed_model(model)
    check_rows(name, batch, steps)
    classes = name.classes if plain else CLASSES
    torch.manual_seed(SEED)
    module = name.build(classes).train()
    _open_gates(module)
    # Exporting runs the model once, which must not move the running statistics it starts from.
    weights = {key: x.numpy().copy() for key, x in module.state_dict().items()}
    graph = from_torch(module, name.example_inputs(batch), loss=name.loss)
    for scheme in schemes:
        with_adapters(graph, find_scheme(scheme_for(scheme, model), graph))
    images, labels = _batches(name, batch, steps if plain else min(steps, REPEATED))
    turns = np.arange(steps) % len(images)
    job = TrainingJob(
        str(name),
        classes=classes,
        learning_rate=PLAIN_RATES.get(name.family, RATE) if plain else RATE,
        momentum=0.0 if plain else MOMENTUM,
        weight_decay=0.0 if plain else WEIGHT_DECAY,
    )
    return Case(str(name), graph, JobData(job, weights, images[turns], labels[turns]))


def _batches(name: ModelName, batch: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return photographs and their labels, or drawn tokens with labels of two classes."""
    if not name.known.vocabulary:
        photos = photo_batches(steps, batch, name.resolution)
        gray = name.known.channels == 1
        return photos.images.mean(2, keepdims=True) if gray else photos.images, photos.labels
    random = np.random.default_rng(SEED)
    tokens = random.integers(0, name.known.vocabulary, (steps, batch, *name.input_shape))
    return tokens, random.integers(0, CLASSES, (steps, batch))


def to_torch_layout(graph: Graph, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the model's own tensors of a checkpoint in PyTorch's order of dimensions."""
    statistics = {}
    for name, param in graph.params.items():
        if name in tensors:
            order = param.permutation
            array = tensors[name]
            statistics[name] = array if order is None else array.transpose(np.argsort(order))
    return statistics


def train_in_torch(data: JobData) -> tuple[list[float], dict[str, np.ndarray]]:
    """Train the job in PyTorch, in this process; a busy machine makes its threads very slow."""
    import torch

    from pockengine.farm.references.torch_reference import train

    torch.set_num_threads(1)
    return train(parse_model(data.job.model).build(data.job.classes), data)


def _open_gates(module: "nn.Module") -> None:
    from torch import nn

    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.constant_(layer.bias, OPEN_BIAS)
