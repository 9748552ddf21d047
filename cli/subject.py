"""Models to tune on the command line: by name, with the user's own weights."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError

from pockengine.cli.optimizers import read_optimizer
from pockengine.cli.options import ModelChoice
from pockengine.cli.quantize import quantized_graph
from pockengine.cli.texts import DATA_SEED, RowForm, names_decoder, open_decoder, read_texts
from pockengine.compiler.ir.graph import LOSS
from pockengine.compiler.optim import Optimizer
from pockengine.compiler.quantize.int8 import Int8
from pockengine.errors import FinetuneError, reason_of
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Tuning, load_tuning
from pockengine.frontends.losses import loss_text
from pockengine.models.find import CROSS_ENTROPY, Found, takes_batch

if TYPE_CHECKING:
    from torch import nn


OPTIMIZER, RATE = "sgd:momentum=0.9", 0.05
"""Default training options of a classifier's trials."""
DECODER_OPTIMIZER, DECODER_RATE = "adamw", 2e-4
"""The same for a decoder: the rate of adapters in `finetune-lm`, as few parameters train at a
time.
"""


def course_of(
    model: ModelChoice, optimizer: Optimizer | None, rate: float | None = None
) -> tuple[Optimizer, float]:
    """Return optimizer and rate, with defaults that suit the model."""
    usual = (DECODER_OPTIMIZER, DECODER_RATE) if names_decoder(model) else (OPTIMIZER, RATE)
    return optimizer or read_optimizer(usual[0]), usual[1] if rate is None else rate


def open_tuning(model: ModelChoice, data: Path, share: float, form: RowForm) -> Tuning:
    """Read training and evaluation data: a decoder's texts, or rows of another model's inputs."""
    if names_decoder(model):
        return read_texts(model, data, share, form)
    return load_tuning(data, share, seed=DATA_SEED)


def open_subject(
    model: ModelChoice,
    classes: int | None,
    weights: Path | None,
    quantize: Int8 | None = None,
    form: RowForm | None = None,
) -> Subject:
    """Find a model of any framework, PyTorch's in evaluation mode; or a folder of a decoder.

    A listed model gets a head of `classes`. `weights` is a safetensors file by the names of a
    PyTorch module; a tensor of another shape (a head for other classes) is skipped. `quantize` are
    the int8 options of the model with these weights.
    """
    form = form or RowForm()
    if names_decoder(model):
        others = {"--classes": classes, "--weights": weights, "--quantize": quantize}
        return open_decoder(model, form, others)
    _check_options(model, quantize, form)
    found = _find(model, classes)
    is_module = callable(getattr(found.model, "eval", None)) and hasattr(found.model, "state_dict")
    if weights is not None:
        if not is_module:
            raise FinetuneError(f"--weights is for PyTorch models, and {model.name} is not one")
        _load(found.model, weights)
    if is_module:
        found.model.eval()
    graph, integers = quantized_graph(replace(found, loss=CROSS_ENTROPY), quantize)
    logits = [output for output in graph.outputs if output != LOSS]
    if len(logits) != 1:
        raise FinetuneError(
            f"{model.name} has the outputs {logits} beside its loss; it must have one"
        )
    return Subject(model.name, graph, logits[0], integers)


def _check_options(model: ModelChoice, quantize: Int8 | None, form: RowForm) -> None:
    """Reject options that a model of rows does not support."""
    if form != RowForm():
        raise FinetuneError(
            f"--max-length, --truncate and --no-pack are for decoders, and {model.name} is none"
        )
    if quantize is not None and quantize.inputs:
        raise FinetuneError(
            f"--quantize-input {quantize.inputs[0]}: trials read rows of real numbers, which the "
            "program rounds; leave it out"
        )


def _find(model: ModelChoice, classes: int | None) -> Found:
    """Return the model; for a function without a batch argument, examples are repeated to
    --batch.
    """
    if model.batch is None or ":" not in model.name or takes_batch(model.name):
        found = model.find(classes)
    else:
        found = replace(model, batch=None).find(classes)
        found = replace(found, inputs=_repeated(found.inputs, model.batch))
    if found.loss is None:
        raise FinetuneError(
            f"{model.name} returns its own loss; give a classifier, or the folder of a decoder"
        )
    if "crossentropy" not in loss_text(found.loss).lower().replace("_", ""):
        raise FinetuneError(
            f"{model.name} is trained by {loss_text(found.loss)}, and trials judge a classifier by "
            "its cross entropy; give a classifier"
        )
    return found


def _repeated(examples: Any, batch: int) -> Any:
    """Return this many example rows, by repetition."""
    if isinstance(examples, Mapping):
        return {name: _repeated(example, batch) for name, example in examples.items()}
    if isinstance(examples, tuple | list):
        return type(examples)(_repeated(example, batch) for example in examples)
    return examples[np.arange(batch) % len(examples)]


def _load(module: "nn.Module", path: Path) -> None:
    from safetensors.torch import load_file

    try:
        stored = load_file(path)
    except (OSError, SafetensorError, AttributeError, LookupError, ValueError, TypeError) as error:
        raise FinetuneError(f"weights {path} cannot be read: {reason_of(error)}") from error
    own = module.state_dict()
    fitting = {
        key: value for key, value in stored.items() if key in own and own[key].shape == value.shape
    }
    unknown = sorted(set(stored) - set(own))
    if unknown or not fitting:
        raise FinetuneError(
            f"weights {path} hold {', '.join(unknown[:3]) or 'nothing'} that the model does not "
            f"have; it has {', '.join(list(own)[:3])}, ..."
        )
    module.load_state_dict(fitting, strict=False)
