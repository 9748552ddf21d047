"""Inferred signs of a graph's values."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pockengine.compiler.ir import F32, Builder, Graph, TensorType, Value
from pockengine.compiler.ir.evaluate import run
from pockengine.frontends.emit.signs import Sign, sign_of

NUMBERS = TensorType(F32, (3,))


def drawn(data: st.DataObject, g: Builder) -> Value:
    """Build a value from a few ops on an input and on positive, zero and negative constants."""
    values = [g.input("x", NUMBERS), g.scalar(0.5), g.scalar(0.0), g.scalar(-0.5)]
    for _ in range(data.draw(st.integers(1, 12))):
        one = data.draw(st.sampled_from(["square", "abs", "exp", "relu", "neg"]))
        two = data.draw(st.sampled_from(["add", "mul", "maximum", "sub", one]))
        a, b = (data.draw(st.sampled_from(values)) for _ in range(2))
        values.append(getattr(g, two)(*([a] if two == one else [a, b])))
    return values[-1]


@given(st.data())
def test_values_have_the_inferred_sign(data: st.DataObject) -> None:
    g = Builder(Graph("test"))
    value = drawn(data, g)
    sign = sign_of(g, value)
    g.graph.outputs["y"] = value

    for x in ([-2.0, -0.5, -1e-3], [0.0, 0.25, 3.0]):
        y = run(g.graph, {"x": np.array(x, np.float32)})["y"]
        if sign >= Sign.NOT_NEGATIVE:
            assert (y >= 0).all()
        if sign is Sign.POSITIVE:
            assert (y > 0).all()


def test_a_norm_divides_by_a_positive_number() -> None:
    g = Builder(Graph("test"))
    x = g.input("x", NUMBERS)

    assert sign_of(g, g.add(g.square(x), g.scalar(1e-3))) is Sign.POSITIVE
    assert sign_of(g, g.square(x)) is Sign.NOT_NEGATIVE
    assert sign_of(g, x) is Sign.UNKNOWN


def test_paths_that_double_with_every_block_are_visited_once() -> None:
    g = Builder(Graph("test"))
    y = g.square(g.input("x", NUMBERS))
    for _ in range(2000):
        y = g.add(y, g.relu(g.add(y, y)))

    assert sign_of(g, y) is Sign.NOT_NEGATIVE
