"""Traits agree with what ops compute: measured on random cases, and compared with declarations.

A new op fails if its definition lacks a trait that it has, or declares one that it lacks. Ops
without random cases (most gradients, updates) are not measured.
"""

import zlib

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from pockengine.compiler.ir.types import I32, DType, TensorType
from pockengine.compiler.ops import OpDef, all_ops, lookup
from pockengine.compiler.ops.registry import REQUIRED
from pockengine.errors import GraphError
from pockengine.tests.compiler.op_case import OpCase
from pockengine.tests.compiler.op_cases import draw_case

CASES = 32
SHIFT = np.float32(0.375)
"""Not an integer, so that rounding is not mistaken for addition."""

Arrays = list[np.ndarray]


def _draw_cases(op: OpDef) -> list[OpCase]:
    """Draw random applications of an op, the same in every run; none without a strategy."""
    drawn: list[OpCase] = []

    @settings(
        max_examples=CASES,
        phases=(Phase.generate,),
        deadline=None,
        database=None,
        derandomize=True,
    )
    @given(draw_case(op.name))
    def collect(case: OpCase) -> None:
        op.infer(case.types, op.complete_attrs(case.attrs))
        drawn.append(case)

    try:
        collect()
    except (GraphError, ValueError):
        return []
    return drawn


OPS = {op.name: cases for op in all_ops() if not op.writes and (cases := _draw_cases(op))}


def _run(case: OpCase, arrays: Arrays) -> np.ndarray:
    op = lookup(case.op)
    with np.errstate(all="ignore"):
        return np.asarray(op.eval(tuple(arrays), op.complete_attrs(case.attrs))[0])


def _replaced(arrays: Arrays, place: int, array: np.ndarray) -> Arrays:
    return [*arrays[:place], np.asarray(array, np.float32), *arrays[place + 1 :]]


def _seed(case: OpCase) -> int:
    """Return a different seed for every case, so that small operands have large numbers too."""
    return zlib.crc32(repr(case).encode())


def _floats(case: OpCase) -> list[int]:
    return [place for place, type_ in enumerate(case.types) if type_.dtype.is_float]


def _close(found: np.ndarray, expected: np.ndarray) -> bool:
    return np.allclose(found, expected, rtol=1e-3, atol=1e-4, equal_nan=True)


def _is_linear(case: OpCase, place: int) -> bool:
    """Return whether the result of the mean of two operands is the mean of their results."""
    first, other = case.arrays(_seed(case)), case.arrays(_seed(case) + 1)[place]
    results = _run(case, first), _run(case, _replaced(first, place, other))
    middle = _run(case, _replaced(first, place, (first[place] + other) / 2))
    return results[0].dtype == np.float32 and _close(middle, (results[0] + results[1]) / 2)


def _is_added(case: OpCase, place: int) -> bool:
    arrays = case.arrays(_seed(case))
    moved = _run(case, _replaced(arrays, place, arrays[place] + SHIFT))
    return moved.dtype == np.float32 and _close(moved, _run(case, arrays) + SHIFT)


def _broadcast(shapes: list[tuple[int, ...]], result: tuple[int, ...]) -> bool:
    """Return whether operands of these shapes broadcast to the result's."""
    try:
        return np.broadcast_shapes(*shapes) == result
    except ValueError:
        return False


def _spreads(case: OpCase, *, rows: bool) -> bool:
    """Return whether an operand's element affects positions outside its own, or outside its row."""
    arrays, rng = case.arrays(_seed(case)), np.random.default_rng(0)
    before = _run(case, arrays)
    shapes = [array.shape for array in arrays]
    if rows and any(not shape or shape[:-1] != before.shape[:-1] for shape in shapes):
        return True
    if before.ndim < max(map(len, shapes)) or not (rows or _broadcast(shapes, before.shape)):
        return True
    for place in _floats(case):
        chosen = np.zeros(shapes[place], bool)
        chosen.flat[rng.integers(chosen.size)] = True
        changed = _replaced(arrays, place, np.where(chosen, 1.25, arrays[place]))
        reach = chosen.any(-1, keepdims=True) if rows else chosen
        if np.any((_run(case, changed) != before) & ~np.broadcast_to(reach, before.shape)):
            return True
    return False


def _numbered(case: OpCase) -> Arrays:
    """Return operands whose elements are distinct positive integers."""
    ends = np.cumsum([type_.size for type_ in case.types])
    return [
        np.arange(end - type_.size + 1, end + 1, dtype=np.float32).reshape(type_.shape)
        for type_, end in zip(case.types, ends, strict=True)
    ]


def _is_copy(case: OpCase) -> bool:
    """Return whether the same positions are copied, whatever the elements are."""
    if len(_floats(case)) < len(case.types):
        return False
    arrays, rng = _numbered(case), np.random.default_rng(0)
    new = np.concatenate([[0.0], 1 + rng.permutation(sum(array.size for array in arrays))])
    result = _run(case, arrays)
    inside = (result == np.floor(result)) & (result >= 1) & (result < len(new))
    places = np.where(inside, result, 0).astype(int)
    other = _run(case, [new[array.astype(int)].astype(np.float32) for array in arrays])
    return np.array_equal(np.where(inside, new[places], result), other)


def _is_part(case: OpCase) -> bool:
    (array,), result = _numbered(case), _run(case, _numbered(case))
    return np.unique(result).size == result.size <= array.size and bool(
        np.isin(result, array).all()
    )


def _is_rearranged(case: OpCase) -> bool:
    """Return whether all elements of an operand occur equally often, the first one first."""
    array, *others = _numbered(case)
    result = _run(case, [array, *others])
    found, counts = np.unique(result, return_counts=True)
    first = not result.size or result.flat[0] == array.flat[0]
    return not others and found.size == array.size and np.ptp(counts) == 0 and first


@pytest.mark.parametrize("name", OPS)
def test_linear_operands_are_declared(name: str) -> None:
    op, cases = lookup(name), OPS[name]
    places = range(len(op.operands))
    measured = [p for p in places if all(p in _floats(c) and _is_linear(c, p) for c in cases)]
    assert tuple(measured) == op.linear


@pytest.mark.parametrize("name", OPS)
def test_added_operands_are_declared(name: str) -> None:
    op, cases = lookup(name), OPS[name]
    measured = [p for p in _floats(cases[0]) if all(_is_added(case, p) for case in cases)]
    assert set(op.shifts) <= set(measured)
    if op.elementwise:
        assert tuple(measured) == op.shifts


def _sums_integers(case: OpCase) -> bool:
    """Return whether an op sums two i8 operands in i32."""
    op = lookup(case.op)
    types = tuple(TensorType(DType.I8, type_.shape) for type_ in case.types)
    try:
        return op.result_types(types, op.complete_attrs(case.attrs))[0].dtype is I32
    except GraphError:
        return False


@pytest.mark.parametrize("name", OPS)
def test_products_are_declared(name: str) -> None:
    op = lookup(name)
    measured = op.linear == (0, 1) and all(_sums_integers(case) for case in OPS[name])
    assert op.product == measured


@pytest.mark.parametrize("name", [name for name in OPS if lookup(name).means])
def test_means_of_ones_are_ones_except_for_padding(name: str) -> None:
    assert lookup(name).linear == (0,)
    for case in OPS[name]:
        (x,) = case.arrays(_seed(case))
        result = _run(case, [np.ones_like(x)])
        assert result.max() <= 1
        assert any(case.attrs.get("padding", ())) or np.all(np.isclose(result, 1))


@pytest.mark.parametrize("name", [name for name in OPS if lookup(name).clamps])
def test_clamps_are_between_their_limits(name: str) -> None:
    op = lookup(name)
    assert op.clamps is not None
    for case in OPS[name]:
        (x,) = arrays = case.arrays(_seed(case))
        least, most = map(np.float32, op.clamps(op.complete_attrs(case.attrs)))
        np.testing.assert_array_equal(_run(case, arrays), np.clip(x, least, most))


@pytest.mark.parametrize("op", [op for op in all_ops() if op.writes], ids=lambda op: op.name)
def test_moving_average_updates_are_declared(op: OpDef) -> None:
    x = np.arange(1, 7, dtype=np.float32)
    attrs = {name: 0.5 if value is REQUIRED else value for name, value in op.attrs.items()}
    alone = len(op.operands) == 2 and not op.variadic
    assert op.follows == (alone and np.array_equal(op.eval((x, x), attrs)[0], x))


@pytest.mark.parametrize("name", OPS)
def test_elementwise_ops_and_ops_on_rows_are_declared(name: str) -> None:
    op, cases = lookup(name), OPS[name]
    assert op.elementwise == (not any(_spreads(case, rows=False) for case in cases))
    if not op.elementwise:
        assert op.rows == (not any(_spreads(case, rows=True) for case in cases))


@pytest.mark.parametrize("name", [name for name in OPS if not lookup(name).elementwise])
def test_copies_views_and_slices_are_declared(name: str) -> None:
    op, cases = lookup(name), OPS[name]
    assert op.copies == all(_is_copy(case) for case in cases)
    if op.copies:
        flat = [(_run(case, _numbered(case)), _numbered(case)[0]) for case in cases]
        assert op.view == all(np.array_equal(y.ravel(), x.ravel()) for y, x in flat)
        part = all(len(case.types) == 1 and _is_part(case) for case in cases)
        assert op.slices == (part and any(y.size < x.size for y, x in flat))
        assert op.rearranges == all(_is_rearranged(case) for case in cases)


PADDED = {"ctc_loss"}
"""Ops with integer lengths and padded labels: labels beyond a length may be anything."""


@pytest.mark.parametrize("name", sorted(set(OPS) - PADDED))
def test_indices_are_declared(name: str) -> None:
    op, types = lookup(name), OPS[name][0].types
    integers = [place for place, type_ in enumerate(types) if type_.dtype.numpy == np.int64]
    assert integers == ([] if op.indices is None else [op.indices.operand])


@pytest.mark.parametrize("op", all_ops(), ids=lambda op: op.name)
def test_ops_that_train_by_channels_are_layers(op: OpDef) -> None:
    weights = {op.operand_name(op.layer.weight)} if op.layer else set()
    assert set(op.channel_vjp) == set(op.channel_axis) == weights
    assert op.layer is None or op.layer.weight in op.linear
