"""Where an operator may differ from eager PyTorch at its edges, and why.

The rules behind it: NaN in gives NaN out, but a gradient at NaN is not PyTorch's in every operator,
as the loss is NaN by then. What PyTorch leaves to the CPU is defined here: floats that no integer
is near saturate, NaN becomes 0. Denormals are kept where the CPU keeps them (not by NEON of 32-bit
ARM). No result is made worse to have PyTorch's overflow.
"""

AT_NAN = "the result is NaN; PyTorch's gradient there follows from how its comparison is written"
OUTSIDE = "outside of the domain, where the result is NaN"

EXEMPT = {
    "abs: gradient 0": AT_NAN,
    "relu: gradient 0": AT_NAN,
    "relu of sum of abs: gradient 0": AT_NAN,
    "hardshrink: gradient 0": AT_NAN,
    "clamp by tensors: gradient 0": AT_NAN,
    "clamp tensors min > max: gradient 0": AT_NAN,
    "logit: gradient 0": OUTSIDE,
    "logit of eps: gradient 0": AT_NAN,
    "gelu: result 0": "PyTorch's vectorised erf gives NaN for infinity; gelu there is infinity",
    "entr: gradient 0": "log(0) + 1 in PyTorch, 0 / 0 here; neither trains",
    "addcdiv: gradient 0": "PyTorch divides by a square that underflows",
    "copysign.Tensor: gradient 0": "PyTorch divides infinity by infinity; the slope is 1 or -1",
    "fmod.Tensor: result 0": "PyTorch's quotient overflows for denormal divisors",
    "remainder.Tensor: result 0": "PyTorch's quotient overflows for denormal divisors",
    "remainder.Tensor: gradient 1": OUTSIDE,
    "xlogy.Tensor: gradient 0": "0 log(infinity)",
    "xlogy.Tensor: gradient 1": "0 / 0 in PyTorch, 0 here",
    "special_xlog1py: gradient 0": "0 log(infinity)",
    "special_xlog1py: gradient 1": "0 / 0 in PyTorch, 0 here",
    "pow.Tensor_Scalar -0.5: gradient 0": "the sign of infinity at -0, and minus infinity",
}
"""Case and part -> reason. An entry that is not needed fails the test."""


def reason_of(difference: str) -> str | None:
    """Return why a difference is allowed; None where it is not."""
    name, part, _ = difference.split(": ", 2)
    if name.startswith("copysign.Scalar"):
        name = "copysign.Tensor"
    return EXEMPT.get(f"{name}: {part}")
