"""Custom gradients, random keys and other element types equal JAX's, or are refused."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from jax.scipy.stats import norm

import pockengine
from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.jax import from_jax, to_pytree
from pockengine.tests.frontends.jax.checks import random
from pockengine.tests.frontends.jax.one_step import check_step

X = np.array([[-2, -1, -0.5, 0, 0.3], [1, 2, 6, 7, -8]], np.float32)
Y = np.array([[-2, -1, -0.5, 0, 0.3], [2, 1, 0, -1, -8]], np.float32)
PARAMS = {"x": X, "y": Y}

ACTIVATIONS = """
    celu elu gelu hard_sigmoid hard_silu hard_tanh leaky_relu log_sigmoid log_softmax logsumexp mish
    relu relu6 selu sigmoid silu soft_sign softmax softplus sparse_plus sparse_sigmoid squareplus
"""


def separated(x: Any) -> Any:
    """Make a matrix with a pair of complex eigenvalues and well-separated real ones."""
    return x / 32 + 3 * jnp.diag(jnp.arange(5.0)) + jnp.eye(5, k=4) * 9 - jnp.eye(5, k=-4) * 9


def places(w: Any) -> Any:
    return w.real, w.imag


FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: (lambda p, name=name: getattr(jax.nn, name)(p["x"])) for name in ACTIVATIONS.split()
} | {
    "logaddexp": lambda p: jnp.logaddexp(p["x"], p["y"]),
    "logaddexp of equals": lambda p: jnp.logaddexp(p["x"], p["x"]),
    "logaddexp2": lambda p: jnp.logaddexp2(p["x"], p["y"]),
    "sinc": lambda p: jnp.sinc(p["x"]),
    "exact gelu": lambda p: jax.nn.gelu(p["x"], approximate=False),
    "large arguments": lambda p: jnp.log(lax.erfc(jnp.abs(p["x"]))) + jnp.log(lax.erfc(-p["y"])),
    "tails": lambda p: jnp.log(norm.sf(p["x"])) + jnp.log(norm.cdf(p["y"])),
    "abs": lambda p: jnp.abs(p["x"]) * p["y"],
    "hypot": lambda p: jnp.hypot(p["x"], p["y"] + 1),
    "ties": lambda p: jnp.maximum(p["x"], p["y"]) + jnp.minimum(p["x"], 0),
    "bounds": lambda p: jnp.clip(p["x"], -0.5, 1.0) * lax.clamp(-0.5, p["y"], 1.0),
    "trained bounds": lambda p: jnp.clip(p["x"], p["y"], p["y"] + 1),
    "clamp of arrays": lambda p: lax.clamp(p["y"] - 1, p["x"], p["y"] + 1) * p["x"],
    "clamp between equals": lambda p: lax.clamp(p["y"], p["x"], p["y"]) + p["x"],
    "clamp with crossed bounds": lambda p: lax.clamp(p["y"] + 1, p["x"], p["y"] - 1) + p["x"],
    "angle": lambda p: jnp.arctan2(p["x"] + 1, p["y"] + 2),
    "where": lambda p: jnp.where(p["x"] > 0, p["x"] ** 2, 0) + p["y"],
    "products": lambda p: p["x"].prod() * p["y"][0],
    "extremes": lambda p: (p["x"].max(), p["y"].min(1), p["x"].prod(1)),
    "remainders": lambda p: jnp.mod(p["x"], 3) + lax.rem(p["y"], 2.0) + p["x"] // 2,
    "masks": lambda p: ((p["x"] > 0) * (p["x"] < 1)) * p["y"] + p["x"],
    "isfinite": lambda p: jnp.isfinite(p["x"]) * p["y"] + p["x"],
    "spread": lambda p: p["x"].std() + p["y"].var(1, ddof=1),
    "remat": lambda p: jax.checkpoint(lambda x: jnp.sin(x) * p["y"])(p["x"]),
    "constant uint32": lambda p: (jnp.arange(4, dtype="uint32") * 7)[1] * p["y"] + p["x"],
    "full precision": lambda p: lax.reduce_precision(p["x"], 8, 23) * p["y"],
    "branches": lambda p: lax.cond(
        p["x"][0, 0] > 1e9, lambda: jnp.log(p["x"] - 1e9), lambda: p["x"] * p["y"]
    ),
    "lax switch": lambda p: lax.switch(
        p["x"][1, 0].astype(int), [jnp.sin, jnp.cos, jnp.exp], p["y"]
    ),
    "solutions": lambda p: (
        jnp.linalg.solve(p["x"] @ p["x"].T + jnp.eye(2), p["y"][:, :2])
        + jnp.linalg.inv(p["y"] @ p["y"].T)
    ),
    "factors": lambda p: (
        jnp.linalg.cholesky(p["x"] @ p["x"].T),
        jnp.linalg.qr(p["y"].T)[1],
        jnp.linalg.slogdet(p["x"] @ p["x"].T)[1],
    ),
    "eigenvalues": lambda p: (
        places(jnp.linalg.eigvals(separated(p["x"].T @ p["y"]))),
        places(jnp.linalg.eigvals(lax.complex(p["y"][:, :2], p["x"][:, :2]))),
    ),
    "eigenvectors": lambda p: [
        places(part)
        for part in lax.linalg.eig(
            lax.complex(separated(p["x"].T @ p["y"]), separated(p["y"].T @ p["x"])),
            compute_left_eigenvectors=False,
            enable_eigvec_derivs=True,
        )
    ],
    "fourier": lambda p: (
        jnp.abs(jnp.fft.rfft(p["x"])),
        jnp.fft.irfft(jnp.fft.rfft(p["y"]) * p["x"][:, :3], 5),
    ),
    "bits": lambda p: (jnp.bitwise_xor(p["x"].astype(int), 5) * p["y"], jnp.signbit(p["x"])),
    "interp": lambda p: jnp.interp(p["x"], jnp.array([-1.0, 0.0, 2.0]), p["y"][0, :3]),
    "stopped": lambda p: lax.stop_gradient(p["x"]) * p["y"] + p["x"],
    "stopped tree": lambda p: jax.tree.map(lax.stop_gradient, p)["x"] * p["y"] + p["x"],
    "straight through": lambda p: p["x"] + lax.stop_gradient(jnp.round(p["x"]) - p["x"]) + p["y"],
    "cond of a number": lambda p: (
        lax.cond(len(p) > 1, lambda x: x * 2, lambda x: x, p["x"]) * p["y"]
    ),
    "scan": lambda p: lax.scan(lambda c, x: (c * 0.5 + x, c.sum()), p["x"][0], p["y"]),
    "fori": lambda p: lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c + p["y"]) * i, p["x"]),
    "cumulative": lambda p: (
        lax.cumprod(p["x"], axis=1) + lax.cumlogsumexp(p["y"], axis=0, reverse=True)
    ),
    "extremes so far": lambda p: (
        lax.cummax(jnp.round(p["x"]), axis=1, reverse=True) * p["y"]
        + lax.cummin(jnp.maximum(p["y"], -1), axis=1)
    ),
    "sorted": lambda p: jnp.sort(p["x"], axis=1) * p["y"] + jnp.sort(p["y"], axis=0),
    "sorted by keys": lambda p: lax.sort((p["x"], p["y"]), dimension=1, num_keys=1)[1],
    "top_k": lambda p: lax.top_k(p["x"] * p["y"], 3)[0],
    "quantiles": lambda p: (
        jnp.median(p["x"]) + jnp.quantile(p["y"], 0.3) + jnp.percentile(p["x"], 80.0, axis=0).sum()
    ),
    "windows over all dimensions": lambda p: lax.reduce_window(
        jnp.einsum("ai,bj->aibj", p["x"], p["y"]),
        -jnp.inf,
        lax.max,
        (2, 3, 2, 2),
        (1, 2, 1, 2),
        "SAME",
    ),
    "special": lambda p: (
        lax.lgamma(jnp.abs(p["x"]) + 0.3)
        + lax.digamma(jnp.abs(p["y"]) + 0.7)
        + lax.erf_inv(jnp.tanh(p["x"]) * 0.9)
        + lax.igamma(1.5, jnp.abs(p["y"]) + 0.1)
    ),
    "shares of gamma": lambda p: (
        lax.igamma(jnp.abs(p["x"]) + 0.2, jnp.abs(p["y"]) + 0.1)
        * lax.igammac(jnp.abs(p["y"]) + 0.2, jnp.abs(p["x"]) + 0.1)
    ),
    "slopes of shares of gamma": lambda p: (
        jax.grad(lambda a: lax.igamma(a, jnp.abs(Y) + 0.1).sum())(jnp.abs(X) + 0.2) * p["x"]
        + p["y"]
    ),
    "cube roots and bessel": lambda p: (
        lax.cbrt(p["x"] + 0.1) * lax.bessel_i0e(p["y"]) + lax.bessel_i1e(p["x"] * 0.3 + 0.1)
    ),
    "switch": lambda p: lax.switch(7, [lambda x: x, lambda x: x * 3], p["x"]) * p["y"],
}


@jax.custom_gradient
def tripled(x: Any) -> Any:
    return jnp.round(x), lambda dy: (3 * dy,)


@jax.custom_vjp
def clipped(x: Any) -> Any:
    return x * 1.0


clipped.defvjp(lambda x: (x * 1.0, None), lambda _, dy: (jnp.clip(dy, -0.1, 0.1),))


@jax.custom_jvp
def relu(x: Any) -> Any:
    """A function with the name of JAX's relu, but another definition."""
    return x * 1.0


relu.defjvp(lambda primals, tangents: (primals[0], 5 * tangents[0]))


@jax.custom_vjp
def bounded(x: Any, y: Any, scale: Any) -> Any:
    """Return two results; the gradient rule combines their cotangents, but not by a sum."""
    return jnp.sin(x) * y, {"count": jnp.int32(2), "twice": x * scale}


def _bounded_rule(saved: Any, dy: Any) -> Any:
    x, y = saved
    joint = jnp.sign(dy[0] * dy[1]["twice"])
    return joint * jnp.cos(x), jnp.sum(joint) * y, None


bounded.defvjp(lambda x, y, scale: (bounded(x, y, scale), (x, y)), _bounded_rule)

OWN: dict[str, Callable[..., Any]] = {
    "custom_gradient": lambda p: tripled(p["x"]) + p["y"],
    "custom_vjp": lambda p: clipped(p["x"]) * p["y"],
    "custom_jvp": lambda p: relu(p["x"]) * p["y"],
    "in a loop": lambda p: lax.fori_loop(0, 2, lambda i, c: clipped(c) * 3, p["x"]) + p["y"],
    "of two results": lambda p: (
        bounded(p["x"], p["y"], 3)[0] + jnp.square(bounded(p["x"] * 2, p["y"], 3)[1]["twice"])
    ),
    "nested": lambda p: jax.checkpoint(lambda x: relu(clipped(x)))(p["x"]) + p["y"],
    "scale_gradient": lambda p: optax.scale_gradient(p["x"], 0.2) * p["y"],
    "xlogy": lambda p: jax.scipy.special.xlogy(jnp.exp(p["x"]), jnp.exp(p["y"])),
    "custom_root": lambda p: (
        lax.custom_root(lambda z: z - p["x"], p["x"], lambda f, x: x - f(x), lambda g, y: y)
        + p["y"]
    ),
}
"""Functions with custom gradients."""

REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "reduce_precision": (
        lambda p: lax.reduce_precision(p["x"], 5, 10),
        "reduce_precision .*: rounding to 5 bits of exponent and 10 of mantissa",
    ),
    "leading zeros": (lambda p: lax.clz(p["x"].astype("int32")) * p["y"], "clz"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradient_of_a_function_equals_jax(name: str) -> None:
    params = PARAMS if name != "isfinite" else {"x": X, "y": Y + 1}
    check_step(FUNCTIONS[name], params, large=True)


@pytest.mark.parametrize("name", OWN)
def test_a_custom_rule_is_the_gradient(name: str) -> None:
    check_step(OWN[name], PARAMS)


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_gradients_and_types_are_refused(name: str) -> None:
    function, words = REFUSED[name]
    with pytest.raises(ImportModelError, match=words):
        from_jax(function, (PARAMS,))


@dataclass
class Linear:
    """A module as in Equinox: a callable pytree with its own arrays."""

    weight: Any
    bias: Any
    activation: Any = jnp.tanh

    def __call__(self, x: Any) -> Any:
        return self.activation(x @ self.weight + self.bias)


jax.tree_util.register_dataclass(Linear, ["weight", "bias"], ["activation"])


def test_arrays_of_a_callable_pytree_train_and_are_returned() -> None:
    x, target = random(4, 3), random(4, 2, seed=1)
    module = Linear(random(3, 2), jnp.zeros(2))
    compiled = pockengine.compile(module, (x,), loss="mse")
    with compiled.session() as session:
        session.train_step({"x": x, "target": target}, lr=0.1)
        tuned = compiled.tuned(session)

    gradient = jax.grad(lambda m: ((m(x) - target) ** 2).mean())(module)
    assert sorted(compiled.graph.params) == ["bias", "weight"]
    assert isinstance(tuned, Linear)
    np.testing.assert_allclose(tuned.weight, module.weight - 0.1 * gradient.weight, rtol=1e-5)
    np.testing.assert_allclose(tuned.bias, -0.1 * gradient.bias, rtol=1e-5)


def test_a_pytree_of_modules_preserves_its_names() -> None:
    layers = jax.tree_util.Partial(lambda m, x: m[0](x), [Linear(random(3, 2), jnp.zeros(2))])
    with pytest.raises(ImportModelError, match=r"a Partial hides which .*function of .params, x"):
        from_jax(layers, (random(4, 3),))
    graph = from_jax(Linear(random(3, 2), jnp.zeros(2)), (random(4, 3),))
    tree = to_pytree(graph, {"bias": np.ones(2, np.float32)}, Linear(random(3, 2), jnp.zeros(2)))
    np.testing.assert_array_equal(tree.bias, [1, 1])


@dataclass
class Mixed:
    """A module whose activation is a leaf, as in Equinox's MLP."""

    weight: Any
    activation: Any = jax.nn.relu

    def __call__(self, x: Any) -> Any:
        return self.activation(x @ self.weight)


jax.tree_util.register_dataclass(Mixed, ["weight", "activation"], [])


def test_a_module_within_a_function_trains_and_is_returned() -> None:
    x, target, module = random(4, 3), random(4, 2, seed=1), Mixed(random(3, 2))
    compiled = pockengine.compile(lambda m, x: jax.vmap(m)(x), (module, x), loss="mse")
    with compiled.session() as session:
        session.train_step({"x": x, "target": target}, lr=0.1)
        tuned = compiled.tuned(session)

    gradient = jax.grad(lambda w: ((Mixed(w)(x) - target) ** 2).mean())(module.weight)
    assert tuned.activation is jax.nn.relu
    np.testing.assert_allclose(tuned.weight, module.weight - 0.1 * gradient, rtol=1e-5)


@dataclass
class Pool:
    """A layer whose settings are leaves, as in Equinox's pooling and dropout."""

    start: float = -np.inf
    whole: bool = True

    def __call__(self, x: Any) -> Any:
        size = x.shape if self.whole else (2,)
        return jax.lax.reduce_window(x, self.start, jax.lax.max, size, size, "VALID")


jax.tree_util.register_dataclass(Pool, ["start", "whole"], [])


def test_numbers_in_a_module_are_settings_and_parameters_elsewhere() -> None:
    params = {"layers": [Mixed(random(3, 4)), Pool(whole=False)], "gain": 2.0}

    def loss(params: Any, x: Any) -> Any:
        linear, pool = params["layers"]
        return params["gain"] * jax.vmap(pool)(linear(x)).sum()

    graph = from_jax(loss, (params, random(5, 3)))

    assert sorted(graph.params) == ["gain", "layers.0.weight"]


def test_a_module_hidden_by_vmap_is_refused() -> None:
    with pytest.raises(ImportModelError, match=r"hides a Mixed, .*lambda module, x: jax.vmap"):
        from_jax(jax.vmap(Mixed(random(3, 2))), (random(4, 3),))


@pytest.mark.parametrize("derive", [jax.random.split, jax.random.fold_in])
def test_a_carried_key_changes_dropout_in_every_step(derive: Any) -> None:
    def step(state: Any, x: Any) -> Any:
        if derive is jax.random.split:
            key, drawing = jax.random.split(state["key"])
        else:
            key, drawing = state["key"], jax.random.fold_in(state["key"], state["step"])
        survivors = jax.random.bernoulli(drawing, 0.5, x.shape) * x
        slope = jax.grad(lambda w: (w * survivors).sum())(state["w"])
        new = {"w": state["w"] - slope, "key": key, "step": state["step"] + 1}
        return new, survivors

    state = {"w": np.zeros(64, np.float32), "key": jax.random.key(0), "step": jnp.int32(0)}
    compiled = pockengine.compile_step(step, (state, np.ones(64, np.float32)), carried=1)
    with compiled.session() as session:
        masks = [
            next(iter(session.train_step({"x": np.ones(64, np.float32)}, lr=0.0).values()))
            for _ in range(2)
        ]
        tuned = compiled.tuned(session)

    np.testing.assert_array_equal(tuned["w"], -(masks[0] + masks[1]))
    assert (masks[0] != masks[1]).any()
    assert all(16 < mask.sum() < 48 for mask in masks)


def noisy(params: Any, x: Any, key: Any) -> Any:
    return (x + params["w"] * jax.random.uniform(key, x.shape)).sum()


@pytest.mark.parametrize("key", [jax.random.PRNGKey(0), jax.random.key(0)], ids=["old", "new"])
def test_an_array_used_for_drawing_is_a_key(key: Any) -> None:
    graph = from_jax(noisy, ({"w": random(3)}, random(2, 3), key))
    assert [value.name for value in graph.inputs] == ["x", "seed"]

    split = from_jax(
        lambda p, k: jax.vmap(lambda k: jax.random.uniform(k, (3,)))(jax.random.split(k, 4)) * p,
        (random(3), key),
    )
    drawn = next(iter(run(split, {"seed": np.int32(1)}).values()))
    assert drawn.shape == (4, 3)


@pytest.mark.parametrize("shape", [(2,), (3, 2), (3,)])
def test_other_arrays_of_uint32_are_not_keys(shape: tuple[int, ...]) -> None:
    hashes = np.arange(np.prod(shape), dtype=np.uint32).reshape(shape) + np.uint32(0xFFFFFFF0)
    check_step(lambda p, hashes: p["x"] * (hashes % 7).astype("float32").sum(), PARAMS, hashes)


def test_a_counter_of_uint32_sets_a_rate() -> None:
    def step(state: Any, x: Any) -> Any:
        rate = 0.1 / (1 + state["count"].astype("float32"))
        return {"w": state["w"] - rate * x, "count": state["count"] + 1}, x.sum()

    state, x = {"w": random(3), "count": jnp.uint32(0)}, random(3)
    graph = from_jax(step, (state, x), carried=1)
    weights = {name: param.data.copy() for name, param in graph.params.items()}
    for _ in range(2):
        run(graph, {"x": x}, weights)
        state, _ = step(state, x)
    found = to_pytree(graph, weights, state)
    np.testing.assert_allclose(found["w"], state["w"], rtol=1e-6)
    assert (found["count"].dtype, int(found["count"])) == (np.uint32, 2)


def test_weights_of_half_precision_are_refused() -> None:
    with pytest.raises(ImportModelError, match=r"x .*keep them as float32, and cast"):
        from_jax(lambda p: p["x"].sum(), ({"x": X.astype(jnp.bfloat16)},))
