"""Edge cases of JAX's functions: results and gradients equal JAX's, in the oracle and in C."""

from pockengine.tests.frontends.edges import jax_frontend
from pockengine.tests.frontends.edges.jax_cases import NUMBERS, groups
from pockengine.tests.frontends.edges.sweep import EdgeTests, Sweep

AT_NAN = "the result is NaN; JAX's gradient depends on how it writes the comparison"
OF_INFINITIES = "a product or quotient of infinities"
OVERFLOW = "JAX's rule overflows or cancels, ours does not"
OUTSIDE = "outside the domain"
ROUNDED = "the quotient is NaN or infinite; its gradient is 0 in JAX, and 0 times infinity here"
ANGLE = "0 / 0 in JAX, 0 here as in PyTorch"

EXEMPT = {
    **dict.fromkeys(
        (f"{name}: gradient {index}" for index in (0, 1) for name in ("lax.max", "lax.min")),
        AT_NAN,
    ),
    **dict.fromkeys(
        (f"jnp.{name}: gradient {i}" for i in (0, 1) for name in ("maximum", "minimum")), AT_NAN
    ),
    **dict.fromkeys(
        (f"jnp.{name} {n}: gradient 0" for name in ("maximum", "minimum") for n in NUMBERS), AT_NAN
    ),
    "absolute: gradient 0": AT_NAN,
    "absolute: gradient 1": AT_NAN,
    "all prod of minus infinities: gradient 0": OF_INFINITIES,
    "all prod of with infinity: gradient 0": OF_INFINITIES,
    "clip above: gradient 0": AT_NAN,
    "clip by arrays: gradient 0": AT_NAN,
    "clip min > max: gradient 0": AT_NAN,
    "clip: gradient 0": AT_NAN,
    "divide: gradient 0": "updates are added to zeros: -0 becomes 0",
    "jnp.abs: gradient 0": AT_NAN,
    "jnp.arctan2: gradient 0": ANGLE,
    "jnp.arctan2: gradient 1": ANGLE,
    "jnp.divide: gradient 1": OVERFLOW,
    "jnp.floor_divide: gradient 0": ROUNDED,
    "jnp.floor_divide: gradient 1": ROUNDED,
    "jnp.hypot: gradient 0": OVERFLOW,
    "jnp.hypot: gradient 1": OVERFLOW,
    "jnp.logaddexp: gradient 0": OVERFLOW,
    "jnp.logaddexp: gradient 1": OVERFLOW,
    "jnp.logaddexp2: gradient 0": OVERFLOW,
    "jnp.logaddexp2: gradient 1": OVERFLOW,
    "jnp.power 0.5: result 0": OUTSIDE,
    "jnp.power 1.5: gradient 0": OUTSIDE,
    "jnp.sinc: gradient 0": OVERFLOW,
    "lax.atan2: gradient 0": ANGLE,
    "lax.atan2: gradient 1": ANGLE,
    "lax.rsqrt: gradient 0": "the sign of infinity at -0",
    "max of columns: gradient 0": AT_NAN,
    "max: gradient 0": AT_NAN,
    "mean entropy: gradient 0": AT_NAN,
    "min: gradient 0": AT_NAN,
    "norm of 1: gradient 0": AT_NAN,
    "norm of infinity: gradient 0": AT_NAN,
    "prod: gradient 0": OF_INFINITIES,
    "ptp: gradient 0": AT_NAN,
    "rounded away: gradient 0": AT_NAN,
    "sigmoid entropy: gradient 0": OF_INFINITIES,
    "sqrt of square: gradient 0": "XLA rewrites it as |x|",
    "sqrt of square: result 0": "XLA rewrites it as |x|",
}


class TestEdges(EdgeTests):
    sweep = Sweep(jax_frontend, groups())
    exempt = EXEMPT
