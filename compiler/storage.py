"""Number formats of stored tensors: arithmetic is always f32."""

from dataclasses import Field, dataclass, fields
from typing import Any

from pockengine.compiler.option import option
from pockengine.errors import CompileError

LAYERS = "weights of linear layers, embeddings and experts"


def _stored(names: str, flag: str, what: str) -> Any:
    """Return a field with a fixed set of names, its command-line option and its help."""
    known = tuple(names.split())
    return option(known[0], f"How {what} are stored.", flag=flag, names=known, what=what)


@dataclass(frozen=True)
class Storage:
    """Storage formats of frozen weights, activations, states and trained weights.

    With rounded `activations` gradients are those of the rounded ones. `states` cannot be f16:
    squares of gradients below 2.4e-4 would underflow to 0. `trained` weights cannot either: most
    steps are below its resolution. CompileError for a name that a field does not support.
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
    """Return the possible names of a field of Storage."""
    names: tuple[str, ...] = part.metadata["names"]
    return names


EXACT = Storage()
"""Everything in f32."""
