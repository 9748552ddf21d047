"""Names of a PyTorch module's outputs."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from torch.utils import _pytree as pytree

from pockengine.compiler.ir.graph import LOSS
from pockengine.errors import ImportModelError

T = TypeVar("T")


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


def with_loss_named(outputs: Mapping[str, T], is_loss: Callable[[T], bool]) -> dict[str, T]:
    """Return outputs by name, with the one that can be a loss named so where none is.

    In a tuple, as transformers returns it, the loss has no name.
    """
    found = [name for name, output in outputs.items() if is_loss(output)]
    if LOSS in outputs or len(found) != 1:
        return dict(outputs)
    return {LOSS if name in found else name: output for name, output in outputs.items()}


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
