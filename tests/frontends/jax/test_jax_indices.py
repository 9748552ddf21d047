"""Indices inside, outside, negative and repeated, in every mode, compared with JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.errors import ImportModelError
from pockengine.frontends.jax import from_jax
from pockengine.tests.frontends.jax.checks import check_function, random
from pockengine.tests.frontends.jax.one_step import check_step

PARAMS = {"w": random(4, 5), "v": random(3, 5, seed=1)}
INDICES = {
    "outside": np.array([1, 7, -9], np.int32),
    "repeated": np.array([-1, 0, 3], np.int32),
    "unique": np.array([3, 0, 2], np.int32),
}
ROWS = np.array([9, -2, 1, -9], np.int32)
SEGMENTS = np.array([0, 5, 2, -1], np.int32)

MODES: dict[str, Callable[..., Any]] = {
    "get": lambda p, i, mode: p["w"].at[i].get(mode=mode),
    "pairs": lambda p, i, mode: p["w"].at[i, i + 1].get(mode=mode),
    "add": lambda p, i, mode: p["w"].at[i].add(p["v"], mode=mode),
    "subtract": lambda p, i, mode: p["w"].at[i].subtract(p["v"], mode=mode),
    "add to pairs": lambda p, i, mode: p["w"].at[i, i + 1].add(1.5 * p["w"][0, 0], mode=mode),
    "set": lambda p, i, mode: p["w"].at[i].set(p["v"], mode=mode),
    "set to a number": lambda p, i, mode: p["w"].at[i].set(p["v"][0, 0], mode=mode),
    "columns": lambda p, i, mode: p["w"].at[:, i].set(p["v"].T[:4] * 2, mode=mode),
    "along": lambda p, i, mode: jnp.take_along_axis(p["w"], jnp.tile(i, (4, 1)), axis=1, mode=mode),
    "integers": lambda p, i, mode: p["w"].sum() * jnp.arange(4).at[i].get(mode=mode),
    "booleans": lambda p, i, mode: p["w"].sum() * (jnp.arange(4) > 1).at[i].get(mode=mode),
    "count": lambda p, i, mode: jnp.zeros(4, jnp.int32).at[i].add(2, mode=mode) * p["w"][:, 0],
    "mark": lambda p, i, mode: (
        jnp.where(jnp.zeros(4, bool).at[i].set(True, mode=mode), 1.0, 2.0) * p["w"][:, 0]
    ),
}
UNIQUE: dict[str, Callable[..., Any]] = {
    "multiply": lambda p, i: p["w"].at[i].multiply(p["v"], unique_indices=True),
    "divide": lambda p, i: p["w"].at[i].divide(3 + p["v"], unique_indices=True),
    "set": lambda p, i: p["w"].at[i].set(p["v"], unique_indices=True),
    "max": lambda p, i: p["w"].at[i].max(p["v"], unique_indices=True),
}
OTHERS: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
    "take": (lambda p, i: jnp.take(p["w"], i, axis=0), INDICES["outside"]),
    "take wrap": (lambda p, i: jnp.take(p["w"], i, axis=0, mode="wrap"), INDICES["outside"]),
    "take clip": (lambda p, i: jnp.take(p["w"], i, axis=1, mode="clip"), INDICES["outside"]),
    "take fill": (
        lambda p, i: jnp.take(p["w"], i, axis=0, mode="fill", fill_value=3.5),
        INDICES["outside"],
    ),
    "max": (lambda p, i: p["w"].at[i].max(p["v"]), INDICES["outside"]),
    "min of pairs": (lambda p, i: p["w"].at[i, i + 1].min(p["v"][:, 0]), INDICES["outside"]),
    "square brackets": (lambda p, i: p["w"][i] + p["w"][-1], INDICES["outside"]),
    "two at once": (lambda p, i: p["w"][i, i], INDICES["outside"]),
    "columns": (lambda p, i: p["w"][:, i], INDICES["outside"]),
    "rows of a batch": (lambda p, i: jax.vmap(lambda r, k: r[k])(p["w"], i), ROWS),
    "slices of a batch": (
        lambda p, i: jax.vmap(lambda r, k: lax.dynamic_slice(r, (k,), (2,)))(p["w"], i),
        ROWS,
    ),
    "updates of a batch": (
        lambda p, i: jax.vmap(lambda r, k: lax.dynamic_update_slice(r, r[:2] * 2, (k,)))(p["w"], i),
        ROWS,
    ),
    "additions of a batch": (
        lambda p, i: jax.vmap(lambda r, k: r.at[k].add(2.0 * r[0]))(p["w"], i),
        ROWS,
    ),
    "writes of a batch": (
        lambda p, i: jax.vmap(lambda r, k: r.at[k].set(2.0 * r[0]))(p["w"], i),
        ROWS,
    ),
    "segment_sum": (lambda p, i: jax.ops.segment_sum(p["w"], i, num_segments=3), SEGMENTS),
    "segment_max": (lambda p, i: jax.ops.segment_max(p["w"], i, 5)[:1], SEGMENTS),
    "maximum": (lambda p, i: p["w"].at[i].max(p["v"]), INDICES["repeated"]),
    "minimum": (lambda p, i: p["w"].at[i].min(p["v"]), INDICES["outside"]),
    "one_hot": (lambda p, i: jax.nn.one_hot(i, 4) @ p["w"], INDICES["outside"]),
    "bincount": (lambda p, i: jnp.bincount(i, length=4) * p["w"][:, 0], INDICES["unique"]),
    "dynamic_slice": (
        lambda p, i: lax.dynamic_slice(p["w"], (i[1], i[2]), (2, 3)),
        INDICES["outside"],
    ),
    "dynamic_update_slice": (
        lambda p, i: lax.dynamic_update_slice(p["w"], p["v"][:2, :2], (i[1], i[2])),
        INDICES["outside"],
    ),
    "dynamic_index": (
        lambda p, i: lax.dynamic_index_in_dim(p["w"], i[1], 0),
        INDICES["outside"],
    ),
    "gather of slices": (
        lambda p, i: lax.gather(
            p["w"],
            jnp.stack([i, i - 1], 1),
            lax.GatherDimensionNumbers((1, 2), (), (0, 1)),
            (2, 3),
            mode="fill",
            fill_value=-1.0,
        ),
        np.array([0, 1, 2], np.int32),
    ),
    "scatter of slices": (
        lambda p, i: lax.scatter_add(
            p["w"],
            i[:, None],
            p["v"].reshape(3, 1, 5)[:, :, :4].reshape(3, 2, 2),
            lax.ScatterDimensionNumbers((1, 2), (), (0,)),
        ),
        np.array([0, 3, 2], np.int32),
    ),
}


@pytest.mark.parametrize("mode", [None, "clip", "drop"])
@pytest.mark.parametrize("name", MODES)
def test_modes_of_input_indices(name: str, mode: str | None) -> None:
    for index in INDICES.values():
        check_step(lambda p, i: MODES[name](p, i, mode), PARAMS, index)


@pytest.mark.parametrize("name", MODES)
def test_modes_of_constant_indices(name: str) -> None:
    for kind, mode in (("outside", None), ("outside", "clip"), ("repeated", "drop")):
        check_step(lambda p, k=kind, m=mode: MODES[name](p, INDICES[k], m), PARAMS)


@pytest.mark.parametrize("name", UNIQUE)
def test_indices_declared_unique(name: str) -> None:
    for kind in ("unique", "outside"):
        check_step(UNIQUE[name], PARAMS, INDICES[kind])


@pytest.mark.parametrize("name", UNIQUE)
def test_repeated_indices_declared_unique_are_refused(name: str) -> None:
    twice = np.array([2, 0, 2], np.int32)
    with pytest.raises(ImportModelError, match="indices that repeat under unique_indices=True"):
        from_jax(lambda p: UNIQUE[name](p, twice), (PARAMS,))
    check_step(lambda p: UNIQUE[name](p, INDICES["outside"]), PARAMS)


def test_extremes_at_clipped_indices_have_no_gradient() -> None:
    """JAX itself divides the gradient by 0."""

    def function(p: Any, i: Any) -> Any:
        return p["w"].at[i].max(p["v"], mode="clip"), p["w"].at[i].min(p["v"], mode="clip")

    for index in (INDICES["outside"], INDICES["unique"]):
        with pytest.raises(ImportModelError, match="gradient of scatter-max in mode 'clip'"):
            from_jax(function, (PARAMS, index))
    with pytest.raises(ImportModelError, match="gradient of scatter-min in mode 'clip'"):
        from_jax(lambda p: function(p, INDICES["outside"]), (PARAMS,))
    check_step(lambda p: function(p, INDICES["unique"]), PARAMS)
    check_step(lambda p, i: p["w"].at[jnp.clip(i, 0, 3)].max(p["v"]), PARAMS, INDICES["outside"])

    constants = jax.tree.map(jnp.asarray, PARAMS)
    check_function(lambda i: function(constants, i), INDICES["outside"])


def test_writes_outside_under_promise_in_bounds_are_refused() -> None:
    def function(p: Any) -> Any:
        return p["w"].at[INDICES["outside"]].add(p["v"], mode="promise_in_bounds").sum()

    with pytest.raises(ImportModelError, match=r"writes outside .*'promise_in_bounds'"):
        from_jax(function, (PARAMS,))


@pytest.mark.parametrize("mode", ["promise_in_bounds", "clip"])
@pytest.mark.parametrize("name", ["add", "set", "get", "pairs", "columns"])
def test_indices_in_bounds(name: str, mode: str) -> None:
    index = np.array([2, 0, 1], np.int32)
    check_step(lambda p, i: MODES[name](p, i, mode), PARAMS, index)
    check_step(lambda p: MODES[name](p, index, mode), PARAMS)


@pytest.mark.parametrize("name", OTHERS)
def test_functions_of_indices(name: str) -> None:
    function, index = OTHERS[name]
    check_step(function, PARAMS, index)


APPLIED: dict[str, Callable[..., Any]] = {
    "rows": lambda x, i: x.at[i].apply(jnp.exp, unique_indices=True),
    "one row": lambda x, i: x.at[i[0]].apply(jnp.exp),
    "known columns": lambda x, i: x.at[:, np.array([3, 0])].apply(lambda y: 2 * y + 1),
    "everything": lambda x, i: x.at[:].apply(jnp.exp),
    "nothing": lambda x, i: x.at[jnp.zeros((0,), np.int32)].apply(jnp.exp),
    "under vmap": lambda x, i: jax.vmap(lambda row, k: row.at[k].apply(jnp.sin))(x[:3], i),
    "booleans": lambda x, i: (x > 0).at[i[1]].apply(jnp.logical_not),
    "bytes": lambda x, i: (i.astype(np.uint8)).at[1:].apply(lambda y: y * 200),
}


@pytest.mark.parametrize("kind", ["outside", "unique"])
@pytest.mark.parametrize("name", APPLIED)
def test_functions_applied_at_indices(name: str, kind: str) -> None:
    check_function(APPLIED[name], PARAMS["w"], INDICES[kind])


def test_functions_applied_at_indices_that_may_repeat_are_refused() -> None:
    with pytest.raises(ImportModelError, match="may repeat; say unique_indices=True"):
        from_jax(lambda p, i: p["w"].at[i].apply(jnp.exp), (PARAMS, INDICES["unique"]))


def test_products_at_repeated_indices() -> None:
    """JAX has no gradient here; the reference applies the updates one by one."""
    index = np.array([0, 2, 2, 0, 2], np.int32)
    w, u = random(4, 3), random(5, 3)

    def in_turn(p: Any) -> Any:
        x = p["w"]
        for place, row in zip(index, p["u"], strict=True):
            x = x.at[place].multiply(row, unique_indices=True)
        return x

    check_step(in_turn, {"w": w, "u": u})
    graphs = (
        from_jax(
            lambda p, i: (p["w"].at[i].multiply(p["u"]) ** 2).sum(), ({"w": w, "u": u}, index)
        ),
        from_jax(lambda p: (in_turn(p) ** 2).sum(), ({"w": w, "u": u},)),
    )
    taken = []
    for graph in graphs:
        step = compile_program(graph, Training(optimizer=Sgd()), check=True).entries["train"].graph
        weights = {"w": w.copy(), "u": u.copy()}
        feed = {"input1": index, "i": index, "lr": np.asarray(1, np.float32)}
        run(step, {value.name: feed[value.name] for value in step.inputs}, weights)
        taken.append(weights)
    for name in ("w", "u"):
        np.testing.assert_allclose(taken[0][name], taken[1][name], rtol=1e-4, atol=1e-5)


def test_integers_combine_at_repeated_indices() -> None:
    x, index = np.array([3, -1, 2, 5], np.int32), np.array([0, 2, 2, 0, 9], np.int32)
    rows = np.arange(-1, 4, dtype=np.int32)
    for name in ("multiply", "max", "min"):
        check_function(lambda x, i, r, name=name: getattr(x.at[i], name)(r), x, index, rows)
