"""Types that no op computes in: 16-bit floats, small integers, u32; empty arrays."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pockengine
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.errors import ImportModelError
from pockengine.frontends.jax import from_jax
from pockengine.tests.frontends.jax.checks import check_function, random
from pockengine.tests.frontends.jax.one_step import check_step

INTEGERS = ("int8", "uint8", "int16", "uint16", "uint32")
WEIGHTS = {"w": random(4, 3), "b": random(3)}
HALVES = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Relative rounding errors. XLA skips some roundings when it fuses, depending on the machine."""


def drawn(dtype: str, *shape: int) -> np.ndarray:
    """Return random numbers over the whole range of a type."""
    limits = np.iinfo(dtype)
    low, high = max(limits.min, -(1 << 31)), min(limits.max, (1 << 32) - 1)
    return np.random.default_rng(0).integers(low, high, shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_as_in_jax(dtype: str) -> None:
    def arithmetic(x: Any, y: Any, f: Any) -> Any:
        one = jnp.ones((), dtype)
        sums = (
            x + y,
            x - y,
            x * y,
            -x,
            jnp.abs(x),
            x // (y | one),
            x % (y | one),
            jnp.cumsum(x, 1),
        )
        bits = (~x, x << one, x >> one, x ^ y, jnp.bitwise_count(x))
        casts = (f.astype(dtype), (x.astype("int32") * 7).astype(dtype), y.astype("float32"))
        return [z.astype("float32") for z in (*sums, *bits, *casts, x.max(1), x[:, ::-1], x < y)]

    f = np.array([-1.5, 300.7, -300.0, 1e10, np.nan, -1e10, 70000.5, 200.9], np.float32)
    check_function(arithmetic, drawn(dtype, 3, 4), drawn(dtype, 3, 4)[::-1].copy(), f)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_as_data_and_as_indices(dtype: str) -> None:
    x = drawn(dtype, 2, 4)
    index = np.array([2, 0, 3], dtype)

    check_step(lambda p, x: x.astype(jnp.float32) / 255 @ p["w"] + p["b"], WEIGHTS, x)
    check_step(
        lambda p, i: (p["w"][i], jnp.take(p["w"], i + 9, 0, mode="fill", fill_value=2)),
        WEIGHTS,
        index,
    )
    check_function(lambda x: x.at[7].get(mode="fill").astype("float32"), x)


@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_trains_as_in_jax(dtype: str) -> None:
    """Our gradients are within rounding of float32's, and within twice that of JAX's own.

    JAX's are off by more than 4 roundings on some CPUs.
    """

    def loss(params: Any, x: Any, dtype: str) -> Any:
        half = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
        h = jax.nn.silu(x.astype(dtype) @ half["w"] + half["b"])
        y = jax.nn.softmax(jnp.concatenate([h, jnp.ones((5, 1), dtype)], 1) * 0.5)
        return (y.astype(jnp.float32) ** 2).mean()

    x = random(5, 4)
    of_half = partial(loss, dtype=dtype)
    expected, of_jax = jax.value_and_grad(of_half)(WEIGHTS, x)
    _, exact = jax.value_and_grad(partial(loss, dtype="float32"))(WEIGHTS, x)
    step = compile_program(from_jax(of_half, (WEIGHTS, x)), Training(optimizer=Sgd()), check=True)
    weights = {name: array.copy() for name, array in WEIGHTS.items()}
    found = run(step.entries["train"].graph, {"x": x, "lr": np.float32(1)}, weights)

    error = 4 * HALVES[dtype]
    np.testing.assert_allclose(found["loss"], expected, rtol=error)
    for name, gradient in exact.items():
        bound = error * float(np.abs(gradient).max())
        ours = WEIGHTS[name] - weights[name]
        np.testing.assert_allclose(ours, gradient, rtol=0, atol=bound)
        np.testing.assert_allclose(ours, of_jax[name], rtol=0, atol=2 * bound)


def rounding(x: Any) -> Any:
    """Apply ops that round, and ops that only move rounded numbers."""
    half = x.astype(jnp.bfloat16)
    parts = (half, half + 1, half * half, half.T, jnp.abs(-half), jnp.maximum(half, 0))
    return [part.astype(jnp.float32) for part in (*parts, x.astype("float16").astype("bfloat16"))]


def test_each_result_is_rounded() -> None:
    graph = from_jax(lambda params, x: rounding(x), ({}, WEIGHTS["w"]))
    for found, expected in zip(
        run(graph, {"x": WEIGHTS["w"]}).values(), rounding(WEIGHTS["w"]), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_bytes_and_half_precision_in_generated_code() -> None:
    def net(params: Any, x: Any) -> Any:
        pictures = x.astype(jnp.bfloat16) / 255
        return jnp.tanh(pictures @ params["w"].astype(jnp.bfloat16)) * params["b"]

    x, labels = drawn("uint8", 6, 4), np.array([0, 2, 1, 1, 0, 2], np.int32)
    compiled = pockengine.compile(net, (WEIGHTS, x), loss="cross_entropy", optimizer="sgd")
    with compiled.session() as session:
        found = session.train_step({"x": x, "target": labels}, lr=0.1)["loss"]
    logits = net(WEIGHTS, x)
    expected = -jax.nn.log_softmax(logits)[jnp.arange(6), labels].mean()
    np.testing.assert_allclose(found, expected, rtol=2.0**-8)


EMPTY: dict[str, Callable[..., Any]] = {
    "a parameter": lambda p, x: x @ p["w"] + p["nothing"].sum(),
    "a part": lambda p, x: (x @ p["w"])[:0].sum() + jnp.concatenate([x[:, :0], x], 1) @ p["w"],
    "a product": lambda p, x: x[:, :0] @ p["w"][:0] + x @ p["w"],
    "a write": lambda p, x: (x @ p["w"]).at[jnp.zeros((0,), int)].add(p["nothing"]),
}


@pytest.mark.parametrize("name", EMPTY)
def test_arrays_without_elements(name: str) -> None:
    check_step(EMPTY[name], {**WEIGHTS, "nothing": np.zeros((0, 3), np.float32)}, random(2, 4))


def test_an_input_without_elements_is_dropped() -> None:
    inputs = (WEIGHTS, random(2, 4), np.zeros((0, 3), np.float32))
    graph = from_jax(lambda p, x, y: x @ p["w"] + y.sum(), inputs)
    assert [value.name for value in graph.inputs] == ["x"]


def test_device_placement_is_ignored() -> None:
    device = jax.devices()[0]
    check_step(
        lambda p, x: jax.device_put(x, device) @ jax.device_put(p, device)["w"],
        WEIGHTS,
        random(2, 4),
    )


@pytest.mark.parametrize("dtype", INTEGERS)
def test_products_of_integer_matrices(dtype: str) -> None:
    def products(a: Any, b: Any) -> Any:
        wide = lax.dot(a, b, preferred_element_type=jnp.float32)
        return (a @ b).astype("float32"), jnp.einsum("ij,kj->ik", a, a).astype("float32"), wide

    check_function(products, drawn(dtype, 3, 4), drawn(dtype, 4, 2))


def test_products_of_booleans() -> None:
    check_function(lambda x, y: ((x > 0) @ (y > 1), jnp.dot(x > 0, y)), random(4, 5), random(5, 3))


def test_large_products_of_integer_matrices_are_refused() -> None:
    x = np.zeros((128, 128), np.int32)
    with pytest.raises(ImportModelError, match=r"2097152 mult.*; 1048576 are the most: cast them"):
        from_jax(lambda p, x: (x @ x).sum() * p["w"], (WEIGHTS, x))
