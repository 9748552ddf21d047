"""Every op: the oracle against PyTorch, gradients against PyTorch and finite differences."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pockengine.compiler.autodiff import backward, derivatives
from pockengine.compiler.ir import F32, Builder, Graph, Value
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.ops import all_ops
from pockengine.compiler.ops.registry import lookup
from pockengine.tests.compiler.op_case import OpCase
from pockengine.tests.compiler.op_cases import draw_case
from pockengine.tests.compiler.op_torch import DIFFERENTIABLE, STEPS, TORCH

KINKED = {"reduce_max", "reduce_min", "max_pool2d", "rem", *STEPS}
KINKED |= {"cholesky", "eigh"}  # they read one triangle, and split the gradient between both
KINKED |= {"eig"}  # the order of the eigenvalues jumps
KINKED |= {"ctc_loss"}  # infinite where the labels are longer than the frames
SMOOTH = [op for op in DIFFERENTIABLE if op not in KINKED]
ONCE = {"attention", "ctc_loss", "hard_sigmoid", "igamma", "igammac"}
"""Ops without second gradients, ours or PyTorch's."""
HELPERS = {
    "bit_and",
    "bit_or",
    "bit_xor",
    "bits_float",
    "float_bits",
    "shift_left",
    "shift_right",
    "cast",
    "argmax",
    "random_uniform",
    "dropout",
    "pack_mask",
    "unpack_mask",
    "logical_and",
    "logical_not",
    "logical_or",
    "decode_blocks",
    "fusion",
    "quotient",
    "stop_gradient",
    "cotangent",
    "custom_gradient",
}
GRADIENTS = {op.name for op in all_ops() if op.name.endswith(("_dx", "_dw", "_dq", "_dk", "_dv"))}


def build(case: OpCase) -> tuple[Builder, list[Value], Value]:
    """A graph of one op, with its operands as inputs named x0, x1, ..."""
    g = Builder(Graph(case.op))
    inputs = [g.input(f"x{index}", type_) for index, type_ in enumerate(case.types)]
    return g, inputs, g.emit(case.op, *inputs, **case.attrs).results[0]


def feed(arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {f"x{index}": array for index, array in enumerate(arrays)}


def weighted_loss(g: Builder, y: Value, weight: np.ndarray) -> Value:
    product = g.mul(y, g.constant(weight))
    axes = tuple(range(len(y.shape)))
    return g.reduce_sum(product, axes=axes) if axes else product


def differentiable(case: OpCase) -> list[int]:
    """Return the operands that have a gradient: the order of zeta has none."""
    rule = lookup(case.op).vjp_rule
    return [i for i, type_ in enumerate(case.types) if type_.dtype is F32 and rule(i) is not None]


def gradients(case: OpCase, arrays: list[np.ndarray], weight: np.ndarray) -> list[np.ndarray]:
    g, inputs, y = build(case)
    wrt = {inputs[index]: None for index in differentiable(case)}
    loss = weighted_loss(g, y, weight)
    found = backward(g, loss, wrt)
    for value in wrt:
        g.output(f"d{value.name}", found[value])
    verify(g.graph)
    return list(run(g.graph, feed(arrays)).values())


def test_every_op_has_a_case() -> None:
    effects = {op.name for op in all_ops() if op.writes}
    untested = {op.name for op in all_ops()} - set(TORCH) - HELPERS - GRADIENTS - effects
    decomposed = {"moments", "batch_norm_sums"}  # tested through the decomposed batch norm
    integers = {"dequantize", "narrow", "quantize", "rescale", "unclamped"}
    assert untested == decomposed | integers, (
        "an op needs its PyTorch equivalent, a row of TORCH in tests/compiler/op_torch.py, and its "
        "strategy, a branch of draw_case in tests/compiler/op_cases.py"
    )


@pytest.mark.parametrize("op", sorted(TORCH))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_oracle_equals_torch(op: str, data: st.DataObject) -> None:
    case = data.draw(draw_case(op))
    arrays = case.arrays(data.draw(st.integers(0, 99)))
    g, _, y = build(case)
    g.output("y", y)
    ours = run(g.graph, feed(arrays))["y"]
    theirs = TORCH[op](*map(torch.from_numpy, arrays), **case.attrs).numpy()
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("op", DIFFERENTIABLE)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_gradient_equals_torch(op: str, data: st.DataObject) -> None:
    case = data.draw(draw_case(op))
    arrays = case.arrays(data.draw(st.integers(0, 99)))
    tensors = [torch.from_numpy(array.copy()) for array in arrays]
    for tensor in tensors:
        tensor.requires_grad_(tensor.dtype is torch.float32)
    y = TORCH[op](*tensors, **case.attrs)
    assert y.dtype is torch.float32
    weight = np.random.default_rng(7).standard_normal(y.shape).astype(np.float32)
    (y * torch.from_numpy(weight)).sum().backward()
    theirs = [tensor.grad for tensor in tensors if tensor.grad is not None]
    for ours, their in zip(gradients(case, arrays, weight), theirs, strict=True):
        np.testing.assert_allclose(ours, their.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", [op for op in DIFFERENTIABLE if op not in ONCE])
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_gradient_of_gradients_equals_torch(op: str, data: st.DataObject) -> None:
    case = data.draw(draw_case(op))
    arrays = case.arrays(data.draw(st.integers(0, 99)))
    tensors = [torch.from_numpy(array.copy()) for array in arrays]
    floats = [tensors[index].requires_grad_() for index in differentiable(case)]
    y = TORCH[op](*tensors, **case.attrs)
    weight = np.random.default_rng(7).standard_normal(y.shape).astype(np.float32)
    loss = (y * torch.from_numpy(weight)).sum()
    first = torch.autograd.grad(loss, floats, create_graph=True, materialize_grads=True)
    square = sum(dx.square().sum() for dx in first) + 0 * loss
    theirs = torch.autograd.grad(square, floats, materialize_grads=True)
    for ours, their in zip(second_gradients(case, arrays, weight), theirs, strict=True):
        scale = max(1.0, float(their.abs().max()))
        np.testing.assert_allclose(ours, their.numpy(force=True), rtol=1e-3, atol=1e-3 * scale)


def second_gradients(
    case: OpCase, arrays: list[np.ndarray], weight: np.ndarray
) -> list[np.ndarray]:
    """Return the gradients of the sum of squares of all gradients."""
    g, inputs, y = build(case)
    wrt = [inputs[index] for index in differentiable(case)]
    loss = weighted_loss(g, y, weight)
    square = g.mul(loss, g.scalar(0.0))
    for dx in derivatives(g, {loss: g.scalar(1.0)}, wrt).values():
        part = g.square(dx)
        axes = tuple(range(len(part.shape)))
        square = g.add(square, g.reduce_sum(part, axes=axes) if axes else part)
    found = backward(g, square, dict.fromkeys(wrt))
    for value in wrt:
        g.output(f"d{value.name}", found[value])
    verify(g.graph)
    return list(run(g.graph, feed(arrays)).values())


@pytest.mark.parametrize("op", SMOOTH)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_gradient_equals_finite_differences(op: str, data: st.DataObject) -> None:
    """In one random direction: d loss(x + t v) / dt at t = 0 is <gradient, v>."""
    case = data.draw(draw_case(op))
    arrays = case.arrays(data.draw(st.integers(0, 99)))
    rng = np.random.default_rng(3)
    weight = rng.standard_normal(build(case)[2].shape).astype(np.float32)
    floats = differentiable(case)
    step = 1e-3
    direction = {i: rng.choice([-1.0, 1.0], arrays[i].shape) for i in floats}
    if near_a_kink(case, arrays, step) or is_curved(case, arrays, step):
        return
    found = gradients(case, arrays, weight)
    slope = sum(float((grad * direction[i]).sum()) for i, grad in zip(floats, found, strict=True))

    def loss(sign: float) -> float:
        moved = [
            (array + sign * step * direction[i]).astype(np.float32) if i in direction else array
            for i, array in enumerate(arrays)
        ]
        node = build(case)[2].node
        assert node is not None
        y = lookup(case.op).eval(tuple(moved), node.attrs)[0]
        return float((y.astype(np.float64) * weight).sum())

    scale = sum(float(np.abs(grad).sum()) for grad in found) + float(np.abs(weight).sum())
    assert abs((loss(1.0) - loss(-1.0)) / (2 * step) - slope) <= 2e-3 * (1 + scale)


def near_a_kink(case: OpCase, arrays: list[np.ndarray], step: float) -> bool:
    """Return whether a step may cross a point where the op is not differentiable."""
    kinks = {
        "abs": [0.0],
        "relu": [0.0],
        "clamp": [-0.7, 1.3],
        "hardtanh": [0.0, 1.5],
        "hard_sigmoid": [-3.0, 3.0],
        "hard_swish": [-3.0, 3.0],
    }
    if case.op in ("maximum", "minimum"):
        return bool(np.any(np.abs(arrays[0] - arrays[1]) < 3 * step))
    return any(np.any(np.abs(arrays[0] - kink) < 3 * step) for kink in kinks.get(case.op, []))


def is_curved(case: OpCase, arrays: list[np.ndarray], step: float) -> bool:
    """Return whether curvature dominates a step, as in a product of three small factors.

    Relative to the linear term, the cubic term is about (step times the sum of 1 / |x|) squared /
    6. For a logarithm, such as those of x and 1 - x in binary_cross_entropy, it is (step / x)
    squared / 3.
    """
    if case.op == "binary_cross_entropy":
        return bool(np.any(np.minimum(arrays[0], 1 - arrays[0]) < 20 * step))
    return case.op == "reduce_prod" and step * float((1 / np.abs(arrays[0])).sum()) > 0.1
