"""Models as commands name them, the same everywhere:

    mobilenet_v2-0.35-96        a name of the registry
    package.module:function     a function that returns (module, example_inputs) or these and a loss
    net.onnx, net.keras, ...    a file of ONNX, Keras or TFLite, or the folder of a SavedModel
    folder                      of a Hugging Face model, with its weights as safetensors

The function takes no argument, or `batch`. Its module is imported, from the current folder too, and
so is trusted as any program that one runs. Files and folders are data, and run no code.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pockengine.compiler.ir.graph import Graph
from pockengine.errors import ImportModelError, MissingPackage
from pockengine.extras import need
from pockengine.frontends.doors import TENSORFLOW_FILES, find_door
from pockengine.frontends.model_files import open_file
from pockengine.models.examples import Shapes, examples
from pockengine.models.hugging_face import is_hugging_face, open_folder
from pockengine.models.registry import parse_model

CROSS_ENTROPY = "cross_entropy"
FILES = {".onnx": "onnx", **dict.fromkeys(TENSORFLOW_FILES, "tensorflow")}
"""Endings of files, and the extra that each needs."""


@dataclass(frozen=True)
class Found:
    """A model in training mode, its example inputs, and the loss that it is to get.

    A loss of None is for a model that returns its own. `stated` is whether its file says the loss.
    """

    name: str
    model: Any
    inputs: Any
    loss: Any
    stated: bool = False

    def graph(self) -> Graph:
        """Import the model with its loss."""
        return find_door(self.model, self.inputs).graph(self.loss)


def find_model(
    name: str, batch: int | None = None, shapes: Shapes | None = None, classes: int | None = None
) -> Found:
    """Find a model by its name; ImportModelError says what is wrong with it.

    A batch of None is nobody's wish: 1, or what a function without this parameter makes. `shapes`
    are of the inputs of a file whose sizes it leaves open. `classes` is for a listed name.
    """
    path = Path(name)
    if classes is not None and (":" in name or path.suffix in FILES or path.is_dir()):
        raise ImportModelError(f"{name} says itself how many classes it has; leave --classes out")
    if ":" in name:
        return Found(name, *_call_factory(name, batch))
    if path.suffix in FILES or path.is_dir():
        return _of_file(name, path, batch, shapes or {})
    listed = parse_model(name)
    need(f"the model {name}", listed.known.extra)
    import torch

    torch.manual_seed(0)
    model = listed.build(classes).train()
    return Found(name, model, listed.example_inputs(batch or 1), listed.loss)


def _of_file(name: str, path: Path, batch: int | None, shapes: Shapes) -> Found:
    if is_hugging_face(path):
        return Found(name, *open_folder(path, batch, shapes))
    if path.is_dir() and not (path / "saved_model.pb").is_file():
        raise ImportModelError(
            f"{name} is a folder of no model: a Hugging Face one has config.json, a SavedModel "
            "saved_model.pb"
        )
    need(f"the model {name}", FILES.get(path.suffix, "tensorflow"))
    opened = open_file(path)
    arrays = examples(name, opened.inputs, batch, shapes)
    inputs = arrays if opened.named else list(arrays.values())
    if opened.loss is not None:
        return Found(name, opened.model, inputs, opened.loss, stated=True)
    return Found(name, opened.model, inputs, CROSS_ENTROPY)


def _call_factory(name: str, batch: int | None) -> tuple[Any, Any, str | None]:
    """Return the model, its inputs and its loss."""
    module_name, _, function = name.partition(":")
    if os.getcwd() not in sys.path:  # as `python -m` has it; a console script has not
        sys.path.insert(0, os.getcwd())
    try:
        factory = getattr(importlib.import_module(module_name), function)
        takes_batch = "batch" in inspect.signature(factory).parameters
        made = tuple(factory(batch=batch or 1) if takes_batch else factory())
        model, inputs, loss = made if len(made) == 3 else (*made, CROSS_ENTROPY)
    except MissingPackage:
        raise
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ImportModelError(
            f"{name}: {error}; give package.module:function, where function() returns "
            "(module, example_inputs)"
        ) from error
    if batch is not None and not takes_batch:
        raise ImportModelError(
            f"{name} takes no batch, so --batch {batch} has no effect; give the function a "
            "parameter `batch`, or make its example inputs of this size"
        )
    return model, inputs if isinstance(inputs, Mapping) else tuple(inputs), loss
