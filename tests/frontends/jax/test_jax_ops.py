"""Primitives as JAX emits them, in forward passes and in gradients, compared with JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pockengine.compiler.ir.evaluate import run
from pockengine.frontends.jax import from_jax
from pockengine.tests.frontends.jax.checks import check_function, random
from pockengine.tests.frontends.jax.one_step import check_step

X = random(4, 5)
I = np.array([1, 2, 0], np.int32)  # noqa: E741
PICTURE = random(2, 7, 7, 3)
ROWS = np.array([[0, 1], [2, 3], [1, 1], [4, 0]], np.int32)

INDEXING: dict[str, Callable[..., Any]] = {
    "take_rows": lambda x, i: jnp.take(x, i, axis=0),
    "take_columns": lambda x, i: jnp.take(x, i, axis=1),
    "pairs": lambda x, i: x[i, i],
    "add_rows": lambda x, i: x.at[i].add(1.0),
    "add_pairs": lambda x, i: x.at[i, i].add(2.0),
    "set_column": lambda x, i: x.at[:, 0].set(1.0),
    "set_known_rows": lambda x, i: x.at[jnp.array([0, 2])].set(7.0),
    "dynamic_slice": lambda x, i: lax.dynamic_slice(x, (i[0], 1), (2, 3)),
    "dynamic_update": lambda x, i: lax.dynamic_update_slice(x, x[:1] * 2, (i[0], 0)),
    "one_hot": lambda x, i: jax.nn.one_hot(i, 5),
    "integers": lambda x, i: (i // 2, (i - 2) % 3, -i, jnp.abs(i - 1), jnp.sign(i - 1)),
    "rows_gradient": jax.grad(lambda x, i: (jnp.take(x, i, axis=0) ** 2).sum()),
}


def greater(a: Any, b: Any) -> Any:
    """Return the larger of two (number, index) pairs, elementwise."""
    return jnp.maximum(a[0], b[0]), jnp.where(a[0] >= b[0], a[1], b[1])


CONTROL: dict[str, Callable[..., Any]] = {
    "scan": lambda x: lax.scan(lambda c, y: (c + y, c.sum()), x[0], x),
    "scan_reverse": lambda x: lax.scan(lambda c, y: (c + y, c * 2), x[0], x, reverse=True),
    "fori": lambda x: lax.fori_loop(0, 3, lambda i, c: c + x[i], x[0]),
    "while": lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x)),
    "cond": lambda x: lax.cond(x.shape[0] > 3, jnp.sin, jnp.cos, x),
    "remat": lambda x: jax.checkpoint(jnp.sin)(x),
    "scan_gradient": jax.grad(
        lambda x: lax.scan(lambda c, y: (jnp.tanh(c + y), c.sum()), x[0], x)[1].sum()
    ),
}

ACTIVATIONS = """
    celu elu gelu hard_sigmoid hard_swish leaky_relu log_softmax logsumexp mish relu relu6 selu silu
    softmax softplus standardize
"""
ELEMENTS: dict[str, Callable[..., Any]] = {
    name: getattr(jax.nn, name) for name in ACTIVATIONS.split()
} | {
    "exact_gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "bounds": lambda x: (jnp.clip(x, -0.5, 0.5), lax.clamp(-0.5, x, 0.3)),
    "powers": lambda x: (x**2, x**3, x**-2, jnp.abs(x) ** 1.5, x**5, jnp.exp2(x)),
    "rounding": lambda x: (jnp.round(x), lax.round(x), jnp.floor(x), jnp.sign(x), x % 0.7),
    "logic": lambda x: ((x > 0).any(1), (x > -9).all(), (x > 0) ^ (x < 1), jnp.isfinite(x)),
    "reductions": lambda x: (x.var(0), x.std(1), x.mean(), x.max(1), x.prod(0)),
    "places": lambda x: (x.argmax(-1), x.argmin(0), jnp.cumsum(x, 1), jnp.tril(x)),
    "moves": lambda x: (x[::-1, ::2], jnp.roll(x, 2, 1), *jnp.split(x, 2, 0), x.T.reshape(2, 10)),
    "padding": lambda x: lax.pad(x, 0.0, ((1, 2, 1), (0, -1, 2))),
    "stacks": lambda x: (jnp.stack([x, 2 * x], 1), *jnp.unstack(x, axis=1), jnp.tile(x, (2, 3))),
    "hyperbolic": lambda x: (jnp.arcsinh(x), jnp.arctanh(x / 9), jnp.sinh(x), jnp.repeat(x, 2)),
    "norm": lambda x: jnp.linalg.norm(x, axis=1),
    "softmax_gradient": jax.grad(lambda x: (jax.nn.softmax(x) ** 2).sum()),
}

GROUPS: dict[str, Callable[..., Any]] = {
    "rows": lambda p, sizes: lax.ragged_dot(p["x"], p["w"], sizes),
    "known sizes": lambda p, _: lax.ragged_dot(p["x"], p["w"], np.array([2, 0, 4], np.int32)),
    "gradients": jax.grad(lambda p, sizes: (lax.ragged_dot(p["x"], p["w"], sizes) ** 2).sum()),
}


@pytest.mark.parametrize("sizes", [[1, 3, 2], [0, 4, 0]])
@pytest.mark.parametrize("name", GROUPS)
def test_products_of_groups_of_rows(name: str, sizes: list[int]) -> None:
    params = {"x": random(6, 5), "w": random(3, 5, 4)}
    function, index = GROUPS[name], np.array(sizes, np.int32)
    if name == "gradients":  # JAX itself has no gradient of them
        check_function(lambda x, w, i: function({"x": x, "w": w}, i), *params.values(), index)
    else:
        check_step(function, params, index)


WINDOWS: dict[str, Callable[..., Any]] = {
    "dilated sums": lambda x: lax.reduce_window(
        x, 0.0, lax.add, (1, 3, 2, 1), (1, 1, 2, 1), "VALID", window_dilation=(1, 2, 1, 1)
    ),
    "products": lambda x: lax.reduce_window(x, 1.0, lax.mul, (1, 2, 2, 1), (1, 2, 1, 1), "SAME"),
    "all dimensions": lambda x: lax.reduce_window(
        x, jnp.inf, lax.min, (2, 3, 2, 2), (1, 2, 2, 1), "SAME"
    ),
    "five dimensions": lambda x: lax.reduce_window(
        x[None], 0.0, lax.add, (1, 2, 3, 3, 1), (1, 1, 2, 2, 1), "SAME"
    ),
    "extremes of integers": lambda x: [
        lax.reduce_window((9 * x).astype(int), start, op, (1, 2, 3, 1), (1, 1, 2, 1), "SAME")
        for start, op in ((-7, lax.max), (2, lax.min), (3, lax.add), (2, lax.mul))
    ],
    "argmax": lambda x: lax.reduce_window(
        (x, jnp.arange(x.size).reshape(x.shape)),
        (-jnp.inf, -1),
        greater,
        (1, 2, 2, 1),
        2 * (1, 2),
        "SAME",
    ),
    "tangents": lambda x: jax.jvp(
        lambda x: lax.reduce_window(x, 2.0, lax.mul, (1, 2, 2, 1), (1, 2, 1, 1), "SAME"),
        (x,),
        (x * x,),
    ),
}

BODIES: dict[str, tuple[float, Callable[..., Any]]] = {
    "add": (2.0, lax.add),
    "mul": (2.0, lax.mul),
    "nothing": (0.0, lax.mul),
    "max": (0.7, lax.max),
    "min": (1.3, lax.min),
    "squares": (0.5, lambda a, b: a + b * b),
    "the last square": (0.9, lambda a, b: b * b),
}

PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "scores": (lambda a, b: jnp.einsum("bqhd,bkhd->bhqk", a, b), (2, 3, 4, 5), (2, 6, 4, 5)),
    "mixed": (lambda a, b: jnp.einsum("bhqk,bkhd->bqhd", a, b), (2, 4, 3, 6), (2, 6, 4, 5)),
    "inner": (jnp.dot, (5,), (5,)),
    "outer": (jnp.outer, (5,), (4,)),
    "attention": (lambda q, k: jax.nn.dot_product_attention(q, k, k), (2, 5, 3, 4), (2, 5, 3, 4)),
    "batched": (jax.vmap(lambda a, b: (a @ b.T).sum(0)), (3, 4, 5), (3, 6, 5)),
}

POOLS: dict[str, Callable[..., Any]] = {
    "max": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
    "max_channels_first": lambda x: lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 1, 3, 2), (1, 1, 2, 1), "VALID"
    ),
    "max_line": lambda x: lax.reduce_window(x[0], -jnp.inf, lax.max, (1, 3, 1), (1, 2, 1), "SAME"),
    "sum": lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
}


@pytest.mark.parametrize("name", INDEXING)
def test_indexing(name: str) -> None:
    check_function(lambda x, i: INDEXING[name](jnp.asarray(x), i), X, I)


def test_indices_along_a_dimension_and_their_gradient() -> None:
    def along(x: Any, i: Any) -> Any:
        return jnp.take_along_axis(x, i, axis=1)

    check_function(along, X, ROWS)
    check_function(jax.grad(lambda x, i: (along(x, i) ** 2).sum()), X, ROWS)
    check_function(lambda x, i: x[:, i], random(3, 5, 2), ROWS)


@pytest.mark.parametrize("name", CONTROL)
def test_control_flow(name: str) -> None:
    check_function(lambda x: CONTROL[name](jnp.asarray(x)), X)


@pytest.mark.parametrize("name", ELEMENTS)
def test_elementwise_and_reductions(name: str) -> None:
    check_function(ELEMENTS[name], 2 * X)


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name: str) -> None:
    check_function(WINDOWS[name], random(2, 7, 6, 3))


@pytest.mark.parametrize("dilated_windows", [False, True])
@pytest.mark.parametrize("name", BODIES)
def test_windows_with_any_function_and_initial_value(name: str, dilated_windows: bool) -> None:
    start, body = BODIES[name]
    gaps = {"base_dilation": (2,), "window_dilation": (3,)} if dilated_windows else {}
    padding = [(2, -1)] if dilated_windows else "SAME"

    def reduced(p: Any) -> Any:
        return lax.reduce_window(p["x"], start, body, (3,), (2,), padding, **gaps)

    check_step(reduced, {"x": np.array([1, 2, 2, 0.7, 1.3], np.float32)}, forwards=True)


@pytest.mark.parametrize("name", BODIES)
def test_reductions_with_any_function_and_initial_value(name: str) -> None:
    start, body = BODIES[name]
    check_function(
        lambda x: (lax.reduce(x, start, body, (1,)), lax.reduce(x, start, body, (0, 1))), X
    )


def test_a_reduction_of_pairs() -> None:
    places = np.arange(X.size, dtype=np.int32).reshape(X.shape)
    check_function(lambda x, i: lax.reduce((x, i), (-jnp.inf, -1), greater, (1,)), X, places)


def test_integers_are_sorted_by_several_keys() -> None:
    i = np.array([[3, 1, 2, 1, 3, 0]], np.int32)
    check_function(lambda i, x: lax.sort((i, -i % 2, x), num_keys=2), i, random(1, 6))
    check_function(lambda i: lax.top_k(i, 4), i)
    check_function(lambda x: jnp.argsort(x, axis=0, descending=True), X)


def test_sort_order_of_signed_nans_and_zeros() -> None:
    forms = [0x7FC00000, 0xFFC00000, 0x7FC00001, 0x80000000, 0, 0x3F800000, 0xFF800000]
    x = np.array([forms, forms[::-1]], np.uint32).view(np.float32)
    check_function(lambda x: lax.top_k(x, 7)[1], x)
    check_function(lambda x: jnp.argsort(x, axis=1), x)
    check_step(lambda p: lax.top_k(p["x"], 2), {"x": X})


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str) -> None:
    function, a, b = PRODUCTS[name]
    check_function(function, random(*a), random(*b, seed=1))


@pytest.mark.parametrize("name", POOLS)
def test_pooling_and_its_gradient(name: str) -> None:
    check_function(POOLS[name], PICTURE)
    check_function(jax.grad(lambda x: (POOLS[name](x) ** 2).sum()), PICTURE)


def test_tangents_and_second_gradients_of_pooling() -> None:
    def pool(x: Any) -> Any:
        return POOLS["max"](x**3)

    def second(p: Any) -> Any:
        return jax.jvp(pool, (p["x"],), (jnp.cos(p["x"]),)), jax.grad(lambda x: pool(x).sum())(
            p["x"]
        )

    check_step(second, {"x": random(1, 5, 5, 2)})


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("order", ["NHWC HWIO NHWC", "NCHW OIHW NCHW"])
def test_convolution_and_its_gradients(stride: int, padding: str, groups: int, order: str) -> None:
    def convolve(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x,
            w,
            (stride, stride),
            padding,
            dimension_numbers=tuple(order.split()),
            feature_group_count=groups,
        )

    x, w = random(2, 8, 9, 4), random(3, 2, 4 // groups, 8)
    if order.startswith("NCHW"):
        x, w = x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)
    gradients = jax.grad(lambda x, w: (convolve(x, w) ** 2).sum(), (0, 1))

    check_function(convolve, x, w)
    graph = check_function(lambda x, w: gradients(x, w), x, w)
    ops = {node.op for node in graph.nodes}
    assert "conv2d_dx" in ops or stride == 1


def test_dilated_transposed_and_one_dimensional_convolutions() -> None:
    def dilated(x: Any, w: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x, w, (2, 1), "SAME", rhs_dilation=(2, 2), dimension_numbers=numbers
        )

    def line(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x[0], w[0], (2,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
        )

    for function in (dilated, line, lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME")):
        gradients = jax.grad(lambda x, w, f=function: (f(x, w) ** 2).sum(), (0, 1))
        check_function(function, PICTURE, random(3, 3, 3, 5))
        check_function(gradients, PICTURE, random(3, 3, 3, 5))


def drawn(function: Callable[..., Any], seed: int = 1) -> list[np.ndarray]:
    """Import a function of a random key and run it."""
    graph = from_jax(lambda params, key: function(key), ({}, jax.random.key(0)))
    assert [value.name for value in graph.inputs] == ["seed"]
    return list(run(graph, {"seed": np.asarray(seed, np.int32)}).values())


def test_random_numbers_follow_their_distribution() -> None:
    def draw(key: Any) -> Any:
        first, second = jax.random.split(key)
        uniform = jax.random.uniform(first, (4000,), minval=-1, maxval=3)
        return uniform, jax.random.normal(second, (4000,)), jax.random.bernoulli(key, 0.3, (4000,))

    uniform, normal, choice = drawn(draw)

    assert -1 <= uniform.min() < -0.99
    assert 2.99 < uniform.max() < 3
    assert abs(normal.mean()) < 0.05
    assert abs(normal.std() - 1) < 0.05
    assert abs(choice.mean() - 0.3) < 0.03


def test_same_key_draws_the_same_numbers_and_other_keys_others() -> None:
    def draw(key: Any) -> Any:
        keys = jax.random.split(key, 3)
        old = jax.random.wrap_key_data(jax.random.key_data(keys[0]))
        each = (keys[0], keys[1], keys[0], old, jax.random.fold_in(key, 7))
        return [jax.random.uniform(k, (50,)) for k in each]

    a, b, again, wrapped, folded = drawn(draw)

    np.testing.assert_array_equal(a, again)
    assert len({x.tobytes() for x in (a, b, folded)}) == 3
    assert wrapped.shape == a.shape
    assert not np.array_equal(a, drawn(draw, seed=2)[0])


def test_reductions_over_the_axis_of_vmap() -> None:
    def spread(row: Any) -> Any:
        mean, most = lax.pmean(row, "rows"), lax.pmax(row, "rows")
        return row - mean, most - lax.pmin(row, "rows"), lax.psum((row, row**2), "rows")

    centered = jax.vmap(lambda row: (row - lax.pmean(row, "rows")) ** 2, axis_name="rows")

    check_function(jax.vmap(spread, axis_name="rows"), X)
    check_function(jax.grad(lambda x: (centered(x) * x).sum()), X)


def test_python_numbers_among_the_results() -> None:
    check_function(lambda x: (x.sum(), 1.0, {"count": 3}), X)
