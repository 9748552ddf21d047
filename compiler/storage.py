"""In how many bits a program keeps what it only stores: arithmetic is f32 all the same."""

from dataclasses import Field, dataclass, fields
from typing import Any

from pockengine.compiler.option import option
from pockengine.errors import CompileError

LAYERS = "weights of linear layers and embeddings"


def _stored(names: str, flag: str, what: str) -> Any:
    """Return a field that is one of some names, with its option of commands and what it stores."""
    known = tuple(names.split())
    return option(known[0], f"How {what} are stored.", flag=flag, names=known, what=what)


@dataclass(frozen=True)
class Storage:
    """The forms in which frozen weights, activations, states and trained weights are stored.

    With rounded `activations` gradients are those of the rounded ones. `states` have no f16: the
    squares of gradients below 2.4e-4 are 0 there. `trained` weights have none either: steps of
    gradients are below what it can say. CompileError for a name that a field does not take.
    """

    weights: str = _stored(
        "f32 bf16 f16 int8 int4", "--frozen-weights", f"{LAYERS} that do not train"
    )
    activations: str = _stored(
        "f32 bf16 f16", "--saved-activations", "activations that the backward pass reads"
    )
    states: str = _stored("f32 bf16 8bit", "--states", "optimizer states")
    trained: str = _stored("f32 bf16", "--trained-weights", f"{LAYERS} that train")

    def __post_init__(self) -> None:
        for part in fields(self):
            name = getattr(self, part.name)
            if name not in stored_names(part):
                known = ", ".join(stored_names(part))
                raise CompileError(f"{part.metadata['what']} are stored as {known}, not {name!r}")


def stored_names(part: "Field[Any]") -> tuple[str, ...]:
    """Return what a field of Storage takes."""
    names: tuple[str, ...] = part.metadata["names"]
    return names


EXACT = Storage()
"""All in f32."""
