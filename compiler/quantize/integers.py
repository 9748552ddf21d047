"""How a program computes whose params are held as integers."""

from dataclasses import dataclass

from pockengine.errors import CompileError

GRADIENTS = ("int8", "f32")


@dataclass(frozen=True)
class Integers:
    """`gradients` that meet integers in a product are rounded to int8, or stay f32.

    With `qas` (quantisation-aware scaling, arXiv 2206.15472) optimisers see real weights and their
    gradients; without, the integers and the gradients of those.
    """

    gradients: str = "int8"
    qas: bool = True

    def __post_init__(self) -> None:
        if self.gradients not in GRADIENTS:
            raise CompileError(f"gradients are {' or '.join(GRADIENTS)}, not {self.gradients!r}")
