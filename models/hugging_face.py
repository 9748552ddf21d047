"""Models of Hugging Face's transformers from a folder: its configuration and safetensors.

Nothing is downloaded, no code of the folder runs, and pickled weights are refused.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.errors import ImportModelError
from pockengine.extras import need
from pockengine.frontends.model_files import Declared
from pockengine.models.examples import Batch, Shapes, examples

if TYPE_CHECKING:
    import torch
    from torch import nn

CONFIG = "config.json"
TOKENS = "input_ids"
DECODERS = ("ForCausalLM", "LMHeadModel")
"""Suffixes of classes that predict the next token."""
_PARTS = "ForConditionalGeneration"
LENGTH = 128
"""Default tokens of an example, or the model's maximum if that is less."""

_OWN_LOSS = (*DECODERS, "ForMaskedLM", "ForTokenClassification")
"""Suffixes of classes whose own loss takes `labels` of the tokens' shape."""
_CLASSIFIERS = ("ForSequenceClassification", "ForImageClassification")


def is_hugging_face(folder: Path) -> bool:
    """Return whether a folder has the configuration of a transformers model."""
    return (folder / CONFIG).is_file()


def is_decoder(folder: Path) -> bool:
    """Return whether a folder's configuration is that of a model that predicts the next token."""
    if not is_hugging_face(folder):
        return False
    need(f"the Hugging Face model {folder}", "models")
    return decoder_class(folder).endswith(DECODERS)


def decoder_class(folder: Path) -> str:
    """Return the configuration's class, or that of the text model of a model with several parts."""
    kind = model_class(folder)
    if not kind.endswith(_PARTS):
        return kind
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    text = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("text_config")
    name = text.get("model_type") if isinstance(text, dict) else None
    found = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(name) if isinstance(name, str) else None
    return found if isinstance(found, str) and found.endswith(DECODERS) else kind


def open_folder(
    folder: Path, batch: Batch, shapes: Shapes
) -> "tuple[nn.Module, dict[str, torch.Tensor], str | None]":
    """Load a model with its weights; also return example inputs and the loss to add.

    ImportModelError for a folder without safetensors, for models with their own code, and for
    unsupported tasks.
    """
    need(f"the Hugging Face model {folder}", "models")
    import torch

    model = _load(folder)
    kind = type(model).__name__
    own_loss = kind.endswith(_OWN_LOSS)
    if not own_loss and not kind.endswith(_CLASSIFIERS):
        raise ImportModelError(
            f"{folder} is a {kind}, which has no loss that is known here; give package.module:"
            "function, where function() returns (module, example_inputs)"
        )
    declared = _inputs(folder, model, own_loss)
    arrays = examples(str(folder), declared, batch, _filled(declared, model, batch, shapes))
    inputs = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if "attention_mask" in inputs:
        inputs["attention_mask"] = torch.ones_like(inputs["attention_mask"])
    return model.train(), inputs, None if own_loss else "cross_entropy"


def _load(folder: Path) -> Any:
    import torch
    import transformers

    kind = model_class(folder)
    try:
        return getattr(transformers, kind).from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=torch.float32,
        )
    except Exception as error:  # transformers raises anything for a damaged folder
        text = next((line for line in str(error).splitlines() if line.strip()), repr(error))
        raise ImportModelError(
            f"{folder} cannot be loaded as a {kind}: {text[:200]}; weights must lie in it as "
            "safetensors (model.save_pretrained writes them)"
        ) from error


def model_class(folder: Path) -> str:
    """Return the name of the configuration's class, which must be one of transformers."""
    import transformers

    if (folder / "adapter_config.json").exists():
        raise ImportModelError(
            f"{folder} holds an adapter of PEFT; give the folder of the model that it is for"
        )
    if not (folder / CONFIG).exists():
        raise ImportModelError(
            f"{folder} holds no {CONFIG}; give a folder that save_pretrained has written"
        )
    try:
        table = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        (kind,) = table["architectures"]
        if not isinstance(kind, str):
            raise TypeError(f"architectures holds {kind!r}")
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise ImportModelError(
            f"{folder / CONFIG} names no class of transformers: {error!r}; save the model by "
            "save_pretrained"
        ) from error
    known = kind.isidentifier() and kind.startswith(tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    found = getattr(transformers, kind, None) if known else None
    if not hasattr(found, "from_pretrained"):
        raise ImportModelError(f"{folder}: {kind!r} is no model of transformers")
    return kind


def _inputs(folder: Path, model: Any, own_loss: bool) -> list[Declared]:
    """Return the inputs of a model: pictures, or tokens with their mask."""
    config, floats, integers = model.config, np.dtype(np.float32), np.dtype(np.int64)
    if model.main_input_name == "pixel_values":
        size = getattr(config, "image_size", None)
        sides = (size, size) if isinstance(size, int | None) else tuple(size)
        shape = (None, getattr(config, "num_channels", 3), *sides)
        return [Declared("pixel_values", shape, floats)]
    if model.main_input_name != TOKENS:
        raise ImportModelError(
            f"{folder} takes {model.main_input_name}, which is not known here; give "
            "package.module:function, where function() returns (module, example_inputs)"
        )
    names = [TOKENS, "attention_mask", *(["labels"] if own_loss else [])]
    return [Declared(name, (None, None), integers) for name in names]


def _filled(declared: list[Declared], model: Any, batch: Batch, shapes: Shapes) -> Shapes:
    """Give all token inputs the same length: the one requested for the tokens."""
    if declared[0].name != TOKENS:
        return shapes
    length = min(LENGTH, getattr(model.config, "max_position_embeddings", LENGTH))
    shape = shapes.get(TOKENS, (batch[0] or batch[1], length))
    return {**{one.name: shape for one in declared}, **shapes}
