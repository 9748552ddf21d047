"""Weights by PyTorch's names in the layouts of channels-last frameworks, and back.

Convolutions become HWIO and linear weights [in, out]; embeddings and vectors stay. A tied tensor is
omitted in the channels-last form and restored in the conversion back.
"""

import numpy as np

from pockengine.farm.references.job import Tensors

TIED = {"lm_head.weight": "model.embed_tokens.weight"}
CONVOLUTION, LINEAR = (2, 3, 1, 0), (1, 0)


def to_channels_last(weights: Tensors) -> Tensors:
    """Return the weights that a model reads, each once."""
    return {
        name: np.ascontiguousarray(np.transpose(tensor, _order(name, tensor.ndim)))
        for name, tensor in weights.items()
        if TIED.get(name) not in weights and not name.endswith(".num_batches_tracked")
    }


def from_channels_last(tensors: Tensors, like: Tensors) -> Tensors:
    """Return tensors under all names of `like` that the model has, in PyTorch's layouts."""
    arrays: Tensors = {}
    for name in like:
        source = name if name in tensors else TIED.get(name)
        if source in tensors:
            tensor = tensors[source]
            order = np.argsort(_order(source, tensor.ndim))
            arrays[name] = np.ascontiguousarray(np.transpose(tensor, order))
    return arrays


def _order(name: str, rank: int) -> tuple[int, ...]:
    """Return the permutation that PyTorch's axes take."""
    if rank == 4:
        return CONVOLUTION
    if rank == 2 and "embed" not in name:
        return LINEAR
    return tuple(range(rank))
