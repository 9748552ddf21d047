"""Edge cases in which an operator may differ from eager PyTorch, and why.

The rules:
NaN in gives NaN out. The gradient at NaN may differ from PyTorch's, as the loss is NaN already.
Casts to integers, undefined in PyTorch, are defined: out of range saturates, NaN becomes 0.
Denormals are preserved where the CPU preserves them (NEON of 32-bit ARM does not).
No result is made less accurate to reproduce an overflow of PyTorch.
"""

from pockengine.tests.frontends.edges.elementwise_cases import NUMBERS

AT_NAN = "the result is NaN; PyTorch's gradient depends on how it writes the comparison"
TIE_OF_INFINITIES = "an element equals an infinite bound; the loss is infinite"
OUTSIDE = "outside the domain, where the result is NaN"
OF_INFINITIES = "a product or quotient of infinities"
NO_INFINITY = "averages are matrix products; infinity times 0 is NaN"
WELFORD = "PyTorch's one-pass mean is NaN if an element is infinite"
SIGNED = "PyTorch divides infinity by infinity; the slope is 1 or -1"
ROUNDING = "rounding of the mean of equal elements, times 1 / sqrt(eps)"

EXEMPT = {
    "abs: gradient 0": AT_NAN,
    "relu: gradient 0": AT_NAN,
    "relu of sum of abs: gradient 0": AT_NAN,
    "special_i1: gradient 0": AT_NAN,
    "special_i1e: gradient 0": AT_NAN,
    "digamma: gradient 0": "PyTorch's sine of a multiple of pi is not 0; the slope is infinite",
    "polygamma: gradient 0": "0 times infinity in PyTorch; at infinity the slope is 0",
    "polygamma: result 1": "PyTorch's sine of a multiple of pi is not 0; the poles are infinite",
    "polygamma: result 2": "0 times infinity in PyTorch; at infinity the result is 0",
    "grid_sample: result 0": "infinity times a weight of 0; PyTorch skips positions outside",
    "hardshrink: gradient 0": AT_NAN,
    "logit: gradient 0": OUTSIDE,
    "entr: gradient 0": "log(0) + 1 in PyTorch, 0 / 0 here; neither is finite",
    "addcdiv: gradient 0": "PyTorch divides by a square that underflows",
    "copysign.Tensor: gradient 0": SIGNED,
    **{f"copysign.Scalar {number}: gradient 0": SIGNED for number in NUMBERS},
    "fmod.Tensor: result 0": "PyTorch's quotient overflows for denormal divisors",
    "remainder.Tensor: result 0": "PyTorch's quotient overflows for denormal divisors",
    "remainder.Tensor: gradient 1": OUTSIDE,
    "xlogy.Tensor: gradient 0": "0 log(infinity)",
    "xlogy.Tensor: gradient 1": "0 / 0 in PyTorch, 0 here",
    "special_xlog1py: gradient 0": "0 log(infinity)",
    "special_xlog1py: gradient 1": "0 / 0 in PyTorch, 0 here",
    "prod: gradient 0": OF_INFINITIES,
    "prod kept: gradient 0": OF_INFINITIES,
    "var_mean: result 1": WELFORD,
    "std_mean: result 1": WELFORD,
    "instance_norm: result 0": ROUNDING,
    "vector_norm 0.5: gradient 0": OF_INFINITIES,
    "vector_norm -1: gradient 0": OF_INFINITIES,
    "vector_norm -2: gradient 0": OF_INFINITIES,
    "vector_norm 1: gradient 0": AT_NAN,
    "vector_norm inf: gradient 0": AT_NAN,
    "vector_norm -inf: gradient 0": AT_NAN,
    "kl_div none: gradient 1": "0 / 0 in PyTorch, 0 here",
    "kl_div mean: gradient 1": "0 / 0 in PyTorch, 0 here",
    "kl_div sum: gradient 1": "0 / 0 in PyTorch, 0 here",
    "adaptive_avg_pool1d: result 0": NO_INFINITY,
    "adaptive_avg_pool2d: result 0": NO_INFINITY,
    "adaptive_avg_pool3d: result 0": NO_INFINITY,
    "_adaptive_avg_pool3d: result 0": NO_INFINITY,
    "scatter_reduce amin of others: gradient 0": "PyTorch counts the excluded element",
    "pow.Tensor_Scalar -0.5: gradient 0": "the sign of infinity at -0, and minus infinity",
}
"""Case and part -> reason. An unneeded entry fails the test."""

BY_CPU = {
    "celu of 2: gradient 0": AT_NAN,
    "clamp by tensors: gradient 0": AT_NAN,
    "clamp tensors min > max: gradient 0": AT_NAN,
    "clamp to infinity: gradient 0": TIE_OF_INFINITIES,
    "clamp_max inf: gradient 0": TIE_OF_INFINITIES,
    "celu: gradient 0": AT_NAN,
    "elu of 0.5: gradient 0": AT_NAN,
    "elu: gradient 0": AT_NAN,
    "fmax: gradient 0": AT_NAN,
    "fmax: gradient 1": AT_NAN,
    "fmin: gradient 0": AT_NAN,
    "fmin: gradient 1": AT_NAN,
    "gelu: result 0": "PyTorch's vectorized erf is NaN at infinity; gelu there is infinity",
    "hardswish: gradient 0": AT_NAN,
    "logit of eps: gradient 0": AT_NAN,
    "selu: gradient 0": AT_NAN,
}
"""Cases where PyTorch itself differs between CPUs or releases: allowed, but not required."""

IN_C = {
    "power of 1.5: gradient 0": "C's root of minus infinity is infinity, PyTorch's is NaN",
}
"""Exemptions of generated C alone."""
