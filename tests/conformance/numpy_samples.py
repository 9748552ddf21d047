"""Sample calls of the functions shared by jax.numpy and keras.ops, and their leaves.

`np` stands for either module. A call is a sample of the function that it starts with; each function
has at least one. Results may be tensors, numbers, or tuples, lists and mappings of these.
"""

from pathlib import Path

import numpy as np

from pockengine.tests.fuzz.program import Leaf


def leaves() -> dict[str, Leaf]:
    """Return the arrays used by the samples, by name; floats are trained."""
    rng = np.random.default_rng(7)

    def normal(*shape: int) -> Leaf:
        return Leaf(rng.normal(size=shape).astype(np.float32), True)

    def uniform(low: float, high: float, *shape: int) -> Leaf:
        return Leaf(rng.uniform(low, high, shape).astype(np.float32), True)

    square = rng.normal(size=(3, 3))
    return {
        "f": normal(3, 4),
        "g": normal(3, 4),
        "v": normal(4),
        "w": normal(4),
        "p": uniform(0.3, 2.0, 3, 4),  # positive
        "u": uniform(-0.9, 0.9, 3, 4),  # within (-1, 1)
        "m": Leaf((np.eye(3) * 2 + square * 0.4).astype(np.float32), True),  # well conditioned
        "s": Leaf((square @ square.T + np.eye(3)).astype(np.float32), True),  # positive definite
        "c": normal(2, 3, 4),
        "d": normal(2, 4, 5),
        "x": normal(2, 6, 6, 3),  # images
        "xi": Leaf(rng.uniform(0, 1, (2, 6, 6, 3)).astype(np.float32)),  # as inputs
        "z": normal(2, 4, 4, 4, 2),  # volumes
        "q": normal(2, 5, 4),  # sequences
        "q2": normal(2, 5, 4),
        "xl": normal(2, 3, 5, 2),  # sequences of lines
        "xs": normal(2, 96),  # signals
        "xs3": normal(2, 96, 1),
        "z6": normal(2, 2, 3, 3, 3, 2),  # sequences of volumes
        "a": normal(2, 5, 2, 4),  # heads of attention
        "i": Leaf(rng.integers(0, 3, (3, 4))),
        "j": Leaf(rng.integers(-3, 4, (3, 4))),
        "n3": Leaf(np.array([2, 0, 1])),
        "n": Leaf(np.array([2, 0, 3, 1])),
        "o": Leaf(np.array([0, 1, 1, 3])),  # sorted
        "b": Leaf(rng.random((3, 4)) < 0.5),
        "e": Leaf(rng.random((3, 4)) < 0.5),
    }


UNARY = """
abs absolute angle arctan arcsinh asinh atan cbrt ceil conj conjugate copy cos cosh deg2rad degrees
exp exp2 expm1 fabs flip fliplr flipud floor gelu imag isfinite isinf isnan isneginf isposinf isreal
nan_to_num ndim negative positive rad2deg radians ravel real rint round sign signbit sin sinc sinh
size square tan tanh transpose trunc relu relu6 sigmoid silu hard_sigmoid hard_silu hard_swish
hard_tanh log_sigmoid mish selu elu celu leaky_relu soft_sign softsign softplus squareplus
sparse_plus sparse_sigmoid swish soft_shrink hard_shrink tanh_shrink threshold identity
mean max min sum std var median amax amin prod ptp argmax argmin argsort sort all any average
count_nonzero cumsum cumprod cumulative_sum diff iscomplex nanmax nanmin nansum nanmean nanstd
nanvar nanprod nanargmax nanargmin nancumsum nancumprod nanmedian trapezoid shape
empty_like ones_like zeros_like tril triu trace diagonal logsumexp softmax log_softmax log1mexp
logmeanexp standardize atleast_1d atleast_2d atleast_3d ediff1d gradient matrix_transpose
unwrap isrealobj iscomplexobj isscalar array asarray i0 normalize size dtype is_tensor
convert_to_tensor stop_gradient
"""
"""Functions that are called with the float matrix `f`."""

IN_RANGE = {
    "p": "log log10 log1p log2 rsqrt sqrt reciprocal",
    "u": "acos arccos arcsin arctanh asin atanh erf erfc erfinv",
    "p + 1": "acosh arccosh",
}
"""Functions that are called with numbers in their domain."""

BINARY = """
add arctan2 atan2 copysign divide equal fmax fmin fmod greater greater_equal heaviside hypot less
less_equal logaddexp logaddexp2 maximum minimum mod multiply nextafter not_equal remainder subtract
true_divide divmod floor_divide isclose allclose array_equal vdot inner
divide_no_nan array_equiv
"""
"""Functions of the two matrices `f` and `g`."""

INTEGERS = """
bitwise_and bitwise_or bitwise_xor gcd lcm left_shift right_shift bitwise_left_shift
bitwise_right_shift add subtract multiply maximum minimum equal less mod floor_divide remainder
"""
"""Functions of the integers `j` and `i + 1`."""

UNARY_INTEGERS = "bitwise_not bitwise_invert invert bitwise_count abs negative sign square sum max"

LOGICAL = "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor equal maximum"
"""Functions of the masks `b` and `e`."""


def read(name: str) -> list[str]:
    """Return the lines of a file of samples in this folder."""
    return Path(__file__).with_name(name).read_text().split("\n")[:-1]


def numpy_calls(module: str, known: set[str]) -> list[str]:
    """Return the samples of a module's functions; `module` is its name."""
    calls = [f"np.{name}(f)" for name in UNARY.split()]
    calls += [f"np.{name}({x})" for x, names in IN_RANGE.items() for name in names.split()]
    calls += [f"np.{name}(f, g)" for name in BINARY.split()]
    calls += [f"np.{name}(j, i + 1)" for name in INTEGERS.split()]
    calls += [f"np.{name}(j)" for name in UNARY_INTEGERS.split()]
    calls += [f"np.{name}(b, e)" for name in LOGICAL.split()]
    calls += read("numpy_functions.txt")
    started = [(call[3:].split("(", 1)[0], call) for call in calls]
    return [call.replace("np.", f"{module}.") for name, call in started if name in known]
