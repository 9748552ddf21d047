"""Import errors: every message names the thing, the fact, the fix, and the user's line."""

import re
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen
from jax import lax

from pockengine.errors import ImportModelError, InternalError
from pockengine.frontends.jax import from_jax, trace
from pockengine.tests.frontends.jax.checks import random

X = random(4, 5)
PARAMS = {"w": random(5)}
THIS_FILE = r"\(at test_jax_errors\.py:\d+\)$"


def rejection(function: Callable[..., Any], *inputs: Any, **options: Any) -> str:
    """Import a function that must be refused; return the error message."""
    with pytest.raises(ImportModelError) as caught:
        from_jax(function, (PARAMS, *(inputs or (X,))), **options)
    return str(caught.value)


def decides(params: Any, x: Any) -> Any:
    return x if x.sum() > 0 else -x


def masks(params: Any, x: Any) -> Any:
    return x[x > 0]


def sizes(params: Any, x: Any) -> Any:
    return jnp.ones(int(x.sum()))


def counts(params: Any, x: Any) -> Any:
    return jnp.nonzero(x)[0]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (decides, "decides decides by the values in an array.*jnp.where"),
        (masks, r"masks makes an array whose shape depends on values.*jnp.where\(mask, x, 0\)"),
        (counts, "counts makes an array whose shape depends on values"),
        (sizes, "sizes needs the values in an array while it is traced.*plain numbers"),
        (lambda p, x: np.sin(x), "needs the values in an array.*use jax.numpy"),
    ],
)
def test_dependence_on_values_is_reported_with_its_line(
    function: Callable[..., Any], words: str
) -> None:
    message = rejection(function)

    assert re.search(words, message)
    assert re.search(THIS_FILE, message)


def counted(operation: Callable[[Any], jax.Array], x: jax.Array) -> jax.Array:
    return operation(x.astype(jnp.int32)).astype(jnp.float32)


def squared(x: jax.Array) -> jax.Array:
    return lax.mulhi(x, x)


class Bends(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return counted(lax.clz, linen.Dense(5)(x)) + counted(squared, x)


class Outer(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return counted(squared, Bends()(Bends()(x)))


def test_all_unsupported_primitives_are_listed_with_their_modules_and_lines() -> None:
    variables = Outer().init(jax.random.key(0), X)

    with pytest.raises(ImportModelError) as caught:
        from_jax(Outer(), (variables, X))

    message = str(caught.value)
    assert message.startswith("Outer cannot be imported: 5 unsupported operations")
    assert re.search(r"2 x clz in .*Outer\.Bends_0 \(test_jax_errors\.py:\d+\)", message)
    assert re.search(r"3 x mulhi in .*Outer\.Bends_1 .*Outer \(test_jax_errors", message)


def called(params: Any, x: Any) -> Any:
    return jax.pure_callback(np.sin, x, x)


def loops(params: Any, x: Any) -> Any:
    return lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, x)


def long_loop(params: Any, x: Any) -> Any:
    return lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=30_000)[0]


def one_way(params: Any, x: Any) -> Any:
    side = (params["w"] * x).sum(0)
    return lax.custom_linear_solve(lambda v: 2 * v, side, lambda _, b: b / 2)


@jax.custom_vjp
def broken(x: jax.Array) -> jax.Array:
    return jnp.round(x)


broken.defvjp(lambda x: (jnp.round(x), None), lambda _, dy: (dy.reshape(7, 3),))


@jax.custom_vjp
def straight(x: jax.Array) -> jax.Array:
    return jnp.round(x)


straight.defvjp(lambda x: (jnp.round(x), None), lambda _, dy: (dy,))


def enclosing(params: Any, x: Any) -> Any:
    side = x.sum()

    @jax.custom_jvp
    def scaled(y: jax.Array) -> jax.Array:
        return y * side

    scaled.defjvp(lambda primals, tangents: (scaled(*primals), tangents[0] * side))
    return scaled(params["w"])


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (called, "pure_callback in the top level .*: a call back into Python"),
        (loops, "while in the top level .*: a while loop whose end depends on data.*lax.scan"),
        (long_loop, "scan in .*: a loop of 30000 steps with 1 operations each"),
        (lambda p, x: x.astype(jnp.float8_e5m2), "elements of type float8_e5m2; use float32"),
        (lambda p, x: broken(p["w"]) * x, "its own gradient does not run: TypeError: .*jax.grad"),
        (enclosing, "gradient reads an array from outside .*; pass it as an argument"),
        (one_way, "custom_linear_solve in .*without transpose_solve.*give transpose_solve="),
        (lambda p, x: lax.clz(x.astype(int)) * 1.0, "there is no rule for it"),
        (
            lambda p, x: jnp.abs(jnp.linalg.eig(x[:, :4] * p["w"][:4])[1]),
            "eig in .*: eigenvectors of what trains.*use jnp.linalg.eigvals.*enable_eigvec_derivs",
        ),
        (
            lambda p, x: jnp.abs(lax.linalg.eig(x[:, :4])[1]) * p["w"][0],
            "eig in .*: left eigenvectors; say compute_left_eigenvectors=False",
        ),
        (lambda p, x: jnp.fft.fft(x), "complex numbers; return their real parts"),
    ],
)
def test_operations_without_an_equivalent_say_why(function: Callable[..., Any], words: str) -> None:
    assert re.search(words, rejection(function))


def test_a_function_of_tensorflow_is_named_as_such() -> None:
    place = "/lib/site-packages/tensorflow/python/ops.py"
    names = {"asarray": np.asarray}
    exec(compile("def square(x): return asarray(x) ** 2", place, "exec"), names)

    error = rejection(lambda p, x: names["square"](x))

    assert re.search(r"calls TensorFlow.* taken for .* JAX's.*tf\.function", error)


def test_custom_gradients_are_accepted_where_nothing_trains() -> None:
    graph = from_jax(lambda p, x: straight(x) * p["w"], (PARAMS, X))

    assert [node.op for node in graph.nodes] == ["round", "mul"]


def test_inputs_and_models_of_wrong_types_are_reported() -> None:
    assert "unknown loss 'hinge'" in rejection(lambda p, x: x, loss="hinge")
    assert "from_jax takes a function or a Flax module, not a int" in rejection(3)
    assert "float8_e5m2" in rejection(lambda p, x: x + 1, X.astype(jnp.float8_e5m2))
    with pytest.raises(ImportModelError, match="needs its variables first"):
        from_jax(Outer(), (X,))
    with pytest.raises(ImportModelError, match="needs example inputs"):
        from_jax(lambda params, x: x, ())


def test_a_failing_function_is_reported_with_its_shapes() -> None:
    message = rejection(lambda p, x: x @ x)

    assert "does not run on example inputs of shapes {'x': (4, 5)}: TypeError" in message
    assert re.search(THIS_FILE, message)
    message = rejection(lambda p, x, y: x @ y)
    assert "missing 1 required positional argument" in message
    assert "faults.py" not in message


def test_our_own_exceptions_are_not_blamed_on_the_function() -> None:
    with (
        patch.object(trace, "theirs", None),
        pytest.raises(InternalError, match=rf"JAX traced f: TypeError.*jax {jax.__version__}"),
    ):
        from_jax(f, (PARAMS, X))


def f(params: Any, x: Any) -> Any:
    return params["w"] * x
