"""How a program computes whose params are held as integers."""

from dataclasses import dataclass

from pockengine.errors import CompileError

GRADIENTS = ("int8", "f32")
FIXED, FLOAT = ROUNDINGS = ("fixed", "float")


@dataclass(frozen=True)
class Integers:
    """`gradients` that meet integers in a product are rounded to int8, or stay f32.

    `rounding` says how sums become integers of another scale: "fixed", by multipliers of 32 bits as
    TensorFlow Lite's reference kernels, which need no floats; or "float", as ONNX Runtime and
    PyTorch: times one f32 factor, halves to the even integer. What is not a product then computes
    with real numbers, as their standards say it.

    With `qas` (quantisation-aware scaling, arXiv 2206.15472) optimisers see real weights and their
    gradients; without, the integers and the gradients of those.
    """

    gradients: str = "int8"
    qas: bool = True
    rounding: str = FIXED

    def __post_init__(self) -> None:
        if self.gradients not in GRADIENTS:
            raise CompileError(f"gradients are {' or '.join(GRADIENTS)}, not {self.gradients!r}")
        if self.rounding not in ROUNDINGS:
            raise CompileError(f"rounding is {' or '.join(ROUNDINGS)}, not {self.rounding!r}")
