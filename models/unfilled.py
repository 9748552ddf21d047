"""Models of transformers by their configuration only: parameters on `meta`, without numbers.

Buffers keep their numbers: tables such as those of rotary embeddings are computed with the model
and are in no file.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


def unfilled(kind: type, config: Any) -> Any:
    """Build a model whose parameters need no memory, in training mode."""
    with _parameters_on_meta():
        model = kind(config)
    if hasattr(model, "tie_weights"):
        model.tie_weights()
    return model.train()


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Make modules built inside register parameters with shapes only."""
    register = nn.Module.register_parameter

    def registered(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:
            parameter = nn.Parameter(
                parameter.detach().to("meta"), requires_grad=parameter.requires_grad
            )
        register(module, name, parameter)

    nn.Module.register_parameter = registered
    try:
        yield
    finally:
        nn.Module.register_parameter = register
