"""Subjects for the command line: a model by name, with the user's own weights."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from pockengine.errors import FinetuneError
from pockengine.finetune.subject import LOSS, Subject
from pockengine.frontends.doors import find_door
from pockengine.models.find import find_model
from pockengine.models.registry import parse_model

if TYPE_CHECKING:
    from torch import nn

CROSS_ENTROPY = "cross_entropy"


def open_subject(name: str, batch: int, classes: int | None, weights: Path | None) -> Subject:
    """Build a PyTorch model by `pockengine compile`'s names, in evaluation mode.

    A model of the registry gets a head of `classes`. `weights` is a safetensors file by the model's
    own names; a tensor of another shape (the head that was for other classes) stays as it is new.
    """
    module, examples = _find(name, batch, classes)
    if weights is not None:
        _load(module, weights)
    graph = find_door(module.eval(), examples).graph(CROSS_ENTROPY)
    logits = [output for output in graph.outputs if output != LOSS]
    if len(logits) != 1:
        raise FinetuneError(f"{name} has the outputs {logits} beside its loss; it must have one")
    return Subject(name, graph, logits[0])


def _find(name: str, batch: int, classes: int | None) -> tuple["nn.Module", Any]:
    """Return the module and examples of one batch."""
    import torch

    if ":" in name:
        if classes is not None:
            raise FinetuneError(f"{name} says itself how many classes it has; leave --classes out")
        module, examples, _ = find_model(name, None)  # repeated to the batch below
        rows = [torch.arange(batch) % len(given) for given in examples]
        return module, tuple(given[row] for given, row in zip(examples, rows, strict=True))
    model = parse_model(name)
    if model.loss is None:
        raise FinetuneError(f"{name} returns its own loss; sensitivity wants a classifier")
    torch.manual_seed(0)
    return model.build(classes), model.example_inputs(batch)


def _load(module: "nn.Module", path: Path) -> None:
    from safetensors.torch import load_file

    try:
        given = load_file(path)
    except (OSError, SafetensorError, AttributeError, LookupError, ValueError, TypeError) as error:
        raise FinetuneError(f"weights {path} cannot be read: {error}") from error
    own = module.state_dict()
    fitting = {
        key: value for key, value in given.items() if key in own and own[key].shape == value.shape
    }
    unknown = sorted(set(given) - set(own))
    if unknown or not fitting:
        raise FinetuneError(
            f"weights {path} hold {', '.join(unknown[:3]) or 'nothing'} that the model does not "
            f"have; it has {', '.join(list(own)[:3])}, ..."
        )
    module.load_state_dict(fitting, strict=False)
