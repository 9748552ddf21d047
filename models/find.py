"""Models by the names that every command accepts:

    mobilenet_v2-0.35-96        a name of the registry
    package.module:function     a function that returns (module, example_inputs) or these and a loss
    net.onnx, net.keras, ...    a file of ONNX, Keras or TFLite, or the folder of a SavedModel
    folder                      a Hugging Face model, with its weights as safetensors

The function takes no argument, or `batch`, possibly with a default. Its module is imported, also
from the current folder, so it is trusted like any program that is run. Files and folders are data,
and run no code.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pockengine.compiler.ir.graph import Graph
from pockengine.errors import ImportModelError, PockEngineError
from pockengine.extras import need
from pockengine.frontends.registry import BUILT_IN, find_source, open_file
from pockengine.models.examples import Batch, Shapes, examples
from pockengine.models.hugging_face import is_hugging_face, open_folder
from pockengine.models.registry import parse_model
from pockengine.models.rows import check_rows

CROSS_ENTROPY = "cross_entropy"
CONTRACT = "function() returns (module, example_inputs)"
FILES = {ending: entry.framework.lower() for entry in BUILT_IN for ending in entry.endings}
"""File extensions, and the extra that each needs."""


@dataclass(frozen=True)
class Found:
    """A model in training mode, its example inputs, and the loss to add.

    A loss of None is for a model that returns its own. `stated` is whether the model or its file
    defines the loss.
    """

    name: str
    model: Any
    inputs: Any
    loss: Any
    stated: bool = False

    def graph(self) -> Graph:
        """Import the model with its loss."""
        return find_source(self.model, self.inputs).graph(self.loss)


def find_model(
    name: str,
    batch: int | None = None,
    shapes: Shapes | None = None,
    classes: int | None = None,
    usual: int = 1,
) -> Found:
    """Find a model by its name; ImportModelError names the fault.

    A batch of None selects the default of the model or function, else `usual`. `shapes` are for
    inputs whose sizes a file leaves open. `classes` is for a listed name.
    """
    path = Path(name)
    if classes is not None and (":" in name or path.suffix in FILES or path.is_dir()):
        raise ImportModelError(f"{name} says itself how many classes it has; leave --classes out")
    if ":" not in name and (path.suffix in FILES or path.is_dir()):
        return _of_file(name, path, (batch, usual), shapes or {})
    if shapes:
        raise ImportModelError(
            f"--shape is for sizes that a file leaves open; {name} has its own: leave --shape out"
        )
    if ":" in name:
        return _call_factory(name, batch, usual)
    if path.is_file():
        raise ImportModelError(f"{name} is no file of a model: {_file_fix(path)}")
    listed = parse_model(name, "; or give package.module:function, or a model's file or folder")
    need(f"the model {name}", listed.known.extra)
    import torch

    torch.manual_seed(0)
    model = listed.build(classes).train()
    check_rows(listed, batch or usual)
    return Found(name, model, listed.example_inputs(batch or usual), listed.loss)


def _of_file(name: str, path: Path, batch: Batch, shapes: Shapes) -> Found:
    if is_hugging_face(path):
        return Found(name, *open_folder(path, batch, shapes))
    if path.is_dir() and not (path / "saved_model.pb").is_file():
        raise ImportModelError(_folder_fault(name, path))
    need(f"the model {name}", FILES.get(path.suffix, "tensorflow"))
    opened = open_file(path)
    arrays = examples(name, opened.inputs, batch, shapes)
    inputs = arrays if opened.named else list(arrays.values())
    if opened.loss is not None:
        return Found(name, opened.model, inputs, opened.loss, stated=True)
    return Found(name, opened.model, inputs, CROSS_ENTROPY)


def _folder_fault(name: str, path: Path) -> str:
    """Return why a folder is no model."""
    if (path / "manifest.json").is_file():
        return f"{name} is an artifact, already compiled; give the MODEL that it was compiled from"
    return (
        f"{name} is a folder of no model: a Hugging Face one has config.json, a SavedModel "
        "saved_model.pb"
    )


def _file_fix(path: Path) -> str:
    """Return what to give instead of a file that is none of FILES."""
    if path.suffix == ".py":
        return f"name a function in it, {path.stem}:FUNCTION; {CONTRACT}"
    return f"those end in {', '.join(FILES)}"


def takes_batch(name: str) -> bool:
    """Whether the function of a name `module:function` has a parameter `batch`."""
    return "batch" in inspect.signature(_factory(name)).parameters


def import_function(name: str, contract: str) -> Callable[..., Any]:
    """Import `package.module:function`, also from the current folder.

    ImportModelError ends with the function's `contract`.
    """
    module_name, _, function = name.partition(":")
    if os.getcwd() not in sys.path:  # as with `python -m`; a console script lacks it
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
        found: Callable[..., Any] | None = getattr(module, function, None)
        if found is None:
            raise ImportModelError(
                f"{name}: {module.__name__} has no function {function}; {_functions_of(module)}"
            )
        inspect.signature(found)
    except PockEngineError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise _contract_error(name, contract, error) from error
    return found


def _functions_of(module: ModuleType) -> str:
    own = (x for x in vars(module).values() if getattr(x, "__module__", None) == module.__name__)
    names = sorted(x.__name__ for x in own if inspect.isfunction(x))
    return f"it has {', '.join(names)}" if names else "it has none"


def _factory(name: str) -> Callable[..., Any]:
    return import_function(name, CONTRACT)


def _contract_error(name: str, contract: str, error: Exception) -> ImportModelError:
    return ImportModelError(
        f"{name}: {type(error).__name__}: {error}; give package.module:function, where {contract}"
    )


def _call_factory(name: str, batch: int | None, usual: int) -> Found:
    """Return the function's result; a compiled Keras model provides a missing loss."""
    factory = _factory(name)
    parameter = inspect.signature(factory).parameters.get("batch")
    if batch is not None and parameter is None:
        raise ImportModelError(
            f"{name} takes no batch, so --batch {batch} has no effect; give the function a "
            "parameter `batch`, or make its example inputs of this size"
        )
    if batch is None and parameter is not None and parameter.default is parameter.empty:
        batch = usual
    try:
        made = tuple(factory() if batch is None else factory(batch=batch))
        model, inputs, *losses = made
        inputs = inputs if isinstance(inputs, Mapping) else tuple(inputs)
        if losses:
            (loss,) = losses
            return Found(name, model, inputs, loss)
        stated = find_source(model, inputs).loss(None)
        return Found(name, model, inputs, loss=stated or CROSS_ENTROPY, stated=stated is not None)
    except PockEngineError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise _contract_error(name, CONTRACT, error) from error
