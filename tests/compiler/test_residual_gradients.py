"""Cotangents of a value with two uses are summed: a residual block against two references."""

import numpy as np
import torch
import torch.nn.functional as F

from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import F32, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.tests.compiler.small_nets import NetBuilder


def residual_block() -> Graph:
    """loss = mean((conv2(relu(conv1(x))) + x)^2), with the gradients of x and both weights."""
    net = NetBuilder("block")
    x = net.g.input("x", TensorType(F32, (1, 5, 5, 3)))
    inner = net.conv(net.g.relu(net.conv(x, "first", 3, 3)), "second", 3, 3)
    loss = net.g.reduce_mean(net.g.square(net.g.add(inner, x)), axes=(0, 1, 2, 3))
    wrt = {x: None, **{param.value: None for param in net.g.graph.params.values()}}
    for value, grad in backward(net.g, loss, wrt).items():
        net.g.output(value.name, grad)
    net.g.output("loss", loss)
    return net.g.graph


def image() -> np.ndarray:
    return np.random.default_rng(2).standard_normal((1, 5, 5, 3)).astype(np.float32)


def test_skip_connection_against_torch() -> None:
    graph = residual_block()
    ours = run(graph, {"x": image()})
    x = torch.from_numpy(image()).requires_grad_()
    weights = {
        name: torch.from_numpy(param.data).requires_grad_() for name, param in graph.params.items()
    }
    first, second = (w.permute(3, 2, 0, 1) for w in weights.values())
    h = F.conv2d(F.relu(F.conv2d(x.permute(0, 3, 1, 2), first, padding=1)), second, padding=1)
    loss = (h.permute(0, 2, 3, 1) + x).square().mean()
    loss.backward()
    np.testing.assert_allclose(ours["loss"], loss.item(), rtol=1e-6)
    for name, tensor in {"x": x, **weights}.items():
        np.testing.assert_allclose(ours[name], tensor.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_skip_connection_against_finite_differences() -> None:
    graph = residual_block()
    base = image()
    direction = np.random.default_rng(4).choice([-1.0, 1.0], base.shape).astype(np.float32)
    step = np.float32(1e-2)
    up, down = (
        float(run(graph, {"x": base + sign * step * direction})["loss"]) for sign in (1, -1)
    )
    slope = float((run(graph, {"x": base})["x"] * direction).sum())
    assert abs((up - down) / (2 * step) - slope) < 1e-2 * abs(slope)
