"""Random numbers: the distributions of jax.random, one stream per key."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import Builder
from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.jax import from_jax

SIZE = (64, 64)
STEPS = 8
Draw = Callable[[Any], Any]

DRAWS: dict[str, Draw] = {
    "beta": lambda key: jax.random.beta(key, 0.4, 0.7, SIZE),
    "bits": lambda key: jax.random.bits(key, SIZE) % 1000,
    "categorical": lambda key: jax.random.categorical(key, jnp.arange(4.0), shape=SIZE),
    "chi square": lambda key: jax.random.chisquare(key, 3.0, shape=SIZE),
    "choice": lambda key: jax.random.choice(key, jnp.arange(5.0), SIZE),
    "dirichlet": lambda key: jax.random.dirichlet(key, jnp.array([0.5, 1.0, 3.0]), (64,)),
    "exponential": lambda key: jax.random.exponential(key, SIZE),
    "gamma": lambda key: jax.random.gamma(key, 2.5, SIZE),
    "gamma of each": lambda key: jax.random.gamma(key, jnp.linspace(0.5, 4.0, 64), SIZE),
    "gamma, steep": lambda key: jax.random.gamma(key, 0.4, SIZE),
    "logarithm of gamma": lambda key: jax.random.loggamma(key, 0.3, SIZE),
    "permutation": lambda key: jax.random.permutation(key, 64).astype(jnp.float32),
    "randint": lambda key: jax.random.randint(key, SIZE, -300, 1100),
    "student": lambda key: jnp.tanh(jax.random.t(key, 3.0, SIZE)),
    "truncated normal": lambda key: jax.random.truncated_normal(key, -1.0, 2.0, SIZE),
}


def drawn(draw: Draw, seed: int) -> np.ndarray:
    """Import a draw and run it with a seed."""

    def scaled(params: Any, key: Any) -> Any:
        return draw(key) * params["w"]

    graph = from_jax(scaled, ({"w": np.ones((), np.float32)}, jax.random.key(0)))
    return next(iter(run(graph, {"seed": np.int32(seed)}).values()))


@pytest.mark.parametrize("name", DRAWS)
def test_draw_has_the_distribution_of_jax(name: str) -> None:
    keys = jax.random.split(jax.random.key(1), STEPS)
    expected = np.stack([np.asarray(DRAWS[name](key), np.float32) for key in keys])

    found = np.stack([drawn(DRAWS[name], step) for step in range(STEPS)])

    spread = float(expected.std())  # at least 512 draws: chance alone gives 0.06 for the mean
    few = 4.0 if found.size < 2048 else 1.0
    assert abs(float(found.mean() - expected.mean())) <= few * 0.04 * spread
    assert float(found.std()) == pytest.approx(spread, rel=few * 0.04)
    quantiles = [0.05, 0.25, 0.5, 0.75, 0.95]
    differences = np.quantile(found, quantiles) - np.quantile(expected, quantiles)
    assert np.abs(differences).max() <= few * 0.06 * spread
    assert not np.array_equal(found[0], found[1])


def test_a_key_repeats_its_numbers_and_another_key_does_not() -> None:
    def both(key: Any) -> Any:
        one, other = jax.random.split(key)
        again, first = (jax.random.gamma(one, 2.0, (64,)) for _ in range(2))
        return jnp.stack([first, again, jax.random.gamma(other, 2.0, (64,))])

    first, again, other = drawn(both, 3)

    np.testing.assert_array_equal(first, again)
    assert abs(np.corrcoef(first, other)[0, 1]) < 0.5


def test_trained_gamma_shape_has_the_gradient_of_the_drawn_sample() -> None:
    def squares(params: Any, key: Any) -> Any:
        drawn = jax.random.gamma(key, params["shape"], (64, 4))
        return {"loss": (drawn * drawn).sum(), "drawn": drawn}

    shape = np.array([0.03, 0.7, 2.0, 30.0], np.float32)
    graph = from_jax(squares, ({"shape": shape}, jax.random.key(0)))
    g, param = Builder(graph), graph.params["shape"].value
    g.output("slope", backward(g, graph.outputs["loss"], {param: None})[param])
    found = run(graph, {"seed": np.int32(3)})

    shapes = np.broadcast_to(shape, (64, 4))
    slopes = 2 * found["drawn"] * lax.random_gamma_grad(shapes, found["drawn"])
    np.testing.assert_allclose(found["slope"], slopes.sum(0), rtol=1e-4)


def test_distributions_with_a_variable_number_of_draws_are_refused() -> None:
    with pytest.raises(ImportModelError, match=r"while .*whose end depends on data"):
        from_jax(lambda key: jax.random.poisson(key, 2.0, (3,)), (jax.random.key(0),))
