"""Share the traces of decoders between tests: PyTorch takes a second for that of a tiny one.

A command of `finetune-lm` traces its model four times: to train, and to generate by chunks of three
lengths. Many tests give it a model of the same configuration.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.clone import clone
from pockengine.frontends.torch.model import from_torch
from pockengine.models import causal_lm, decoding

Examples = Mapping[str, torch.Tensor]


@contextmanager
def shared_traces() -> Iterator[None]:
    """Trace decoders that have shapes only once for each configuration and example inputs."""
    known: dict[Any, Graph] = {}

    def traced(module: Any, examples: Examples) -> Graph:
        if not all(parameter.is_meta for parameter in module.parameters()):
            return from_torch(module, examples)
        key = _facts(module, examples)
        if key not in known:
            known[key] = from_torch(module, examples)
        return clone(known[key])

    with pytest.MonkeyPatch.context() as patch:
        for importer in (causal_lm, decoding):
            patch.setattr(importer, "from_torch", traced)
        yield


def _facts(module: Any, examples: Examples) -> Any:
    """Return all that the graph depends on."""
    parts = [(name, type(part), part.training) for name, part in module.named_modules()]
    configs = [part.config for part in module.modules() if hasattr(part, "config")]
    own = {f"{each.to_json_string()}{each._attn_implementation}" for each in configs}
    weights = [(n, x.shape, x.requires_grad) for n, x in module.named_parameters()]
    buffers = [(n, x.shape, x.numpy().tobytes()) for n, x in module.named_buffers()]
    inputs = [(name, x.shape, x.dtype) for name, x in examples.items()]
    return tuple(map(tuple, (parts, sorted(own), weights, buffers, inputs)))
