"""Arithmetic of a program whose params are stored as integers."""

from dataclasses import dataclass

from pockengine.errors import CompileError

GRADIENTS = ("int8", "f32")
FIXED, FLOAT = ROUNDINGS = ("fixed", "float")


@dataclass(frozen=True)
class Integers:
    """`gradients` in products with integers are rounded to int8, or stay f32.

    `rounding` says how sums are rescaled to integers: "fixed", by 32-bit multipliers as in
    TensorFlow Lite's reference kernels, without floats; or "float", as in ONNX Runtime and PyTorch:
    one f32 factor, halves to even. Everything but products then computes with real numbers, as
    those standards specify.

    With `qas` (quantization-aware scaling, arXiv 2206.15472) optimizers see real weights and their
    gradients; without, the integers and their gradients.
    """

    gradients: str = "int8"
    qas: bool = True
    rounding: str = FIXED

    def __post_init__(self) -> None:
        if self.gradients not in GRADIENTS:
            raise CompileError(f"gradients are {' or '.join(GRADIENTS)}, not {self.gradients!r}")
        if self.rounding not in ROUNDINGS:
            raise CompileError(f"rounding is {' or '.join(ROUNDINGS)}, not {self.rounding!r}")
