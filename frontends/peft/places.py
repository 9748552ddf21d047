"""The place of a weight's adapter in PEFT's files: next to its module.

Of nn.MultiheadAttention PEFT adapts the packed weight and the output projection together, and
releases so far (0.21.2) add the second's product twice as they compute
(huggingface/peft#3774). Ours of the packed weight alone are written with a second of zeros, which
is none and stays so in training; others than zeros are not read.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir.graph import Graph, Value
from pockengine.compiler.sparse.lora import Adapter, packed_attention
from pockengine.errors import AdapterError

PREFIX = "base_model.model."

Tensors = dict[str, np.ndarray]

TWICE = "PEFT adds the adapter of out_proj in nn.MultiheadAttention twice as it computes"


@dataclass(frozen=True)
class AdaptedModule:
    """A module that PEFT adapts; `attention`: an nn.MultiheadAttention, by its packed weight."""

    module: str
    attention: bool

    def keys(self) -> tuple[str, str]:
        """Return the names of the factors A and B."""
        return _keys(self.module)

    def magnitude_key(self) -> str:
        """Return the name of DoRA's magnitudes."""
        return f"{PREFIX}{self.module}.lora_magnitude_vector"

    def layer(self) -> tuple[str, str]:
        """Return the adapted layer that may have a bias, and its path in PEFT's model."""
        if self.attention:
            return f"{self.module}.out_proj", f"{self.module}.base_layer.out_proj.base_layer"
        return self.module, f"{self.module}.base_layer"

    def zeros(self, adapter: Adapter, graph: Graph) -> Tensors:
        """Return the zero factors of the output projection, which PEFT requires."""
        if not self.attention:
            return {}
        rank, size = adapter.rank, graph.params[f"{self.module}.out_proj.weight"].value.shape[0]
        shapes = (rank, size), (size, rank)
        keys = _keys(self.layer()[1].removesuffix(".base_layer"))
        return {key: np.zeros(shape, np.float32) for key, shape in zip(keys, shapes, strict=True)}

    def drop_zeros(self, adapter: Adapter, graph: Graph, tensors: Tensors) -> None:
        """Drop the module's zero tensors from the read ones; AdapterError if they are trained."""
        adapters = [tensors.pop(key) for key in self.zeros(adapter, graph) if key in tensors]
        if adapters and all(array.any() for array in adapters):
            raise AdapterError(
                f"{self.module}: the adapter of its out_proj is trained. {TWICE}, so only PEFT "
                "knows what it means: merge it there (merge_and_unload), and import that model"
            )


def tied_names(graph: Graph) -> dict[str, str]:
    """Return the params that several modules share, by the names of these other modules' weights.

    Such as the embedding of a decoder, by `lm_head.weight`. PEFT's files have each of them.
    """
    readers: dict[Value, set[str]] = {}
    for node in graph.nodes:
        for value in node.operands:
            readers.setdefault(value, set()).add(node.scope)
    found = {}
    for name, param in graph.params.items():
        module, _, leaf = name.rpartition(".")
        for scope in sorted(readers.get(param.value, ())):
            inside = f"{module}.".startswith(f"{scope}.") or not (scope and module)
            if not inside and f"{scope}.{leaf}" not in graph.params:
                found[f"{scope}.{leaf}"] = name
    return found


def _keys(path: str) -> tuple[str, str]:
    return f"{PREFIX}{path}.lora_A.weight", f"{PREFIX}{path}.lora_B.weight"


def place_of(names: Collection[str], weight: str) -> AdaptedModule:
    """Find an adapted weight among the params of these names.

    AdapterError when PEFT could not name it, or computes something else with it.
    """
    module, _, leaf = weight.rpartition(".")
    attention = packed_attention(names, weight)
    if attention == module:
        return AdaptedModule(module, attention=True)
    if attention is not None:
        raise AdapterError(
            f"{weight}: {TWICE}; leave it out of the scheme, or save the merged weights by "
            "save_weights"
        )
    if not module or leaf != "weight":
        raise AdapterError(
            f"{weight} is not the `weight` of a module, which PEFT's files know alone; save the "
            "merged weights by save_weights"
        )
    return AdaptedModule(module, attention=False)
