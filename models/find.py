"""Models as commands name them: `mobilenet_v2-0.35-96` or `package.module:function`.

The function takes no argument, or `batch`, and returns (module, example_inputs). Its module is
imported, and so is trusted as any program that one runs.
"""

import importlib
import inspect
from typing import Any

from pockengine.errors import ImportModelError
from pockengine.models.registry import parse_model


def find_model(name: str, batch: int | None) -> tuple[Any, Any, str | None]:
    """Return the module in training mode, its example inputs, and the loss that it is to get.

    A batch of None is nobody's wish: 1, or what a function without this parameter makes.
    """
    if ":" in name:
        return (*_call_factory(name, batch), "cross_entropy")
    import torch

    model = parse_model(name)
    torch.manual_seed(0)
    return model.build().train(), model.example_inputs(batch or 1), model.loss


def _call_factory(name: str, batch: int | None) -> tuple[Any, tuple[Any, ...]]:
    module_name, _, function = name.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), function)
        takes_batch = "batch" in inspect.signature(factory).parameters
        module, example_inputs = factory(batch=batch or 1) if takes_batch else factory()
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
    return module, tuple(example_inputs)
