"""The algebra of lazily permuted tensors, compared with NumPy."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.frontends import emit
from pockengine.frontends.layout import NHWC, Tensor, framework_order, permute, plain, reshape

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def drawn_tensor(
    data: st.DataObject, shape: tuple[int, ...], name: str = "x"
) -> tuple[Builder, Tensor, np.ndarray]:
    """Return an input stored in a drawn layout, and its data in the framework's order."""
    layout = tuple(data.draw(st.permutations(range(len(shape))), label=f"layout of {name}"))
    g = Builder(Graph("test"))
    value = g.input(name, TensorType(F32, tuple(shape[dim] for dim in layout)))
    return g, Tensor(value, layout), numbers(shape)


def result(g: Builder, y: Tensor, **inputs: tuple[Tensor, np.ndarray]) -> np.ndarray:
    """Evaluate `y` in the framework's order."""
    g.output("y", framework_order(g, y))
    arrays = {
        name: np.array(array.transpose(tensor.layout), order="C")
        for name, (tensor, array) in inputs.items()
    }
    return run(g.graph, arrays)["y"]


def factorizations(size: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw shapes with `size` elements."""

    @st.composite
    def draw_shape(draw: st.DrawFn) -> tuple[int, ...]:
        left, shape = size, []
        while left > 1:
            factor = draw(st.sampled_from([n for n in range(1, left + 1) if left % n == 0]))
            shape.append(factor)
            left //= factor
        return tuple(shape) or (1,)

    return draw_shape()


@settings(max_examples=200, deadline=None)
@given(st.data(), SHAPES)
def test_reshape_equals_numpy(data: st.DataObject, shape: tuple[int, ...]) -> None:
    g, x, array = drawn_tensor(data, shape)
    target = data.draw(factorizations(array.size))

    y = reshape(g, x, target)

    assert y.shape == target
    assert np.array_equal(result(g, y, x=(x, array)), array.reshape(target))


@settings(max_examples=100, deadline=None)
@given(st.data(), SHAPES)
def test_permutation_copies_nothing_and_equals_numpy(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    g, x, array = drawn_tensor(data, shape)
    dims = data.draw(st.permutations(range(len(shape))))

    y = permute(x, dims)

    assert not g.graph.nodes
    assert np.array_equal(result(g, y, x=(x, array)), array.transpose(dims))


@settings(max_examples=200, deadline=None)
@given(st.data(), SHAPES)
def test_broadcasting_aligns_the_frameworks_last_dimensions(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    g, x, array = drawn_tensor(data, shape)
    rank = data.draw(st.integers(0, len(shape)))
    other_shape = tuple(
        data.draw(st.sampled_from([1, size])) for size in shape[len(shape) - rank :]
    )
    layout = tuple(data.draw(st.permutations(range(rank))))
    stored_shape = tuple(other_shape[dim] for dim in layout)
    other = Tensor(g.input("other", TensorType(F32, stored_shape)), layout)
    other_array = numbers(other_shape)

    y = emit.elementwise(g, "add", other, x)

    assert y.shape == shape
    found = result(g, y, x=(x, array), other=(other, other_array))
    assert np.array_equal(found, array + other_array)


@settings(max_examples=100, deadline=None)
@given(st.data(), SHAPES, st.booleans())
def test_reduction_uses_the_frameworks_dimension_numbers(
    data: st.DataObject, shape: tuple[int, ...], keepdims: bool
) -> None:
    g, x, array = drawn_tensor(data, shape)
    dims = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))

    y = emit.reduce(g, "reduce_sum", x, sorted(dims), keepdims)

    found = result(g, y, x=(x, array))
    assert np.array_equal(found, array.sum(tuple(dims), keepdims=keepdims))


def test_pixels_of_a_channels_last_picture_flatten_without_moving() -> None:
    g = Builder(Graph("test"))
    x = Tensor(g.input("x", TensorType(F32, (2, 5, 7, 3))), NHWC)

    tokens = permute(reshape(g, x, (2, 3, 35)), (0, 2, 1))

    assert [node.op for node in g.graph.nodes] == ["reshape"]
    assert framework_order(g, tokens).shape == (2, 35, 3)
    assert len(g.graph.nodes) == 1


def test_flattening_a_channels_last_picture_needs_one_transpose() -> None:
    g = Builder(Graph("test"))
    x = Tensor(g.input("x", TensorType(F32, (2, 5, 7, 3))), NHWC)

    reshape(g, x, (2, 105))

    assert [node.op for node in g.graph.nodes] == ["transpose", "reshape"]


def test_channel_vector_needs_no_transpose_beside_a_picture() -> None:
    g = Builder(Graph("test"))
    picture = Tensor(g.input("x", TensorType(F32, (2, 5, 7, 3))), NHWC)
    scale = plain(g.input("scale", TensorType(F32, (3, 1, 1))))

    emit.elementwise(g, "mul", picture, scale)

    assert [node.op for node in g.graph.nodes] == ["reshape", "mul"]
    assert g.graph.nodes[0].result.shape == (3,)


def test_a_transposed_copy_is_made_once() -> None:
    g = Builder(Graph("test"))
    x = Tensor(g.input("x", TensorType(F32, (2, 5, 7, 3))), NHWC)

    assert framework_order(g, x) is framework_order(g, x)
