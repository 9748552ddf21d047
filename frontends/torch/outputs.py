"""Names of a PyTorch module's outputs."""

from collections.abc import Mapping
from typing import Any

from torch.utils import _pytree as pytree

from pockengine.compiler.ir.graph import LOSS
from pockengine.errors import ImportModelError


def output_names(spec: Any, count: int, own_loss: bool) -> list[str]:
    """Name the flat results by their places in forward's result."""
    structure = pytree.tree_unflatten(list(range(count)), spec)
    if own_loss:
        outputs, number = structure
        names = _names(outputs)
        if LOSS in names or not isinstance(number, int):
            raise ImportModelError(
                "with a loss of your own the model must return no output named 'loss', and the "
                "loss one scalar"
            )
        return [*names, LOSS]
    return _names(structure)


def _names(structure: Any) -> list[str]:
    names = []
    if isinstance(structure, Mapping):  # transformers' own have no paths before PyTorch 2.9
        structure = dict(structure)
    for path, _ in pytree.tree_flatten_with_path(structure)[0]:
        parts = [
            str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path
        ]
        if not parts or parts[0].isdigit():
            parts.insert(0, "output")
        names.append(".".join(parts))
    return names
