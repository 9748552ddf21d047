"""Cross entropy with ignored and with invalid labels."""

import numpy as np
import pytest
import torch

from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run


def loss_and_gradient(labels: list[int], ignore_index: int = -100) -> tuple[float, np.ndarray]:
    g = Builder(Graph("loss"))
    x = g.input("x", TensorType(F32, (len(labels), 3)))
    target = g.input("target", TensorType(I64, (len(labels),)))
    loss = g.cross_entropy(x, target, ignore_index=ignore_index)
    g.output("loss", loss)
    g.output("dx", backward(g, loss, {x: None})[x])
    found = run(g.graph, {"x": logits(len(labels)), "target": np.array(labels)})
    return float(found["loss"]), found["dx"]


def logits(rows: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("labels", "ignore_index"), [([0, 2, -100, 1], -100), ([1, 1, 2], 2), ([0, 1], -100)]
)
def test_ignored_rows_equal_torch(labels: list[int], ignore_index: int) -> None:
    x = torch.from_numpy(logits(len(labels))).requires_grad_()
    theirs = torch.nn.functional.cross_entropy(x, torch.tensor(labels), ignore_index=ignore_index)
    theirs.backward()
    loss, gradient = loss_and_gradient(labels, ignore_index)
    assert loss == pytest.approx(theirs.item(), rel=1e-6)
    np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=1e-5, atol=1e-7)


def test_padding_with_ignored_rows_preserves_results() -> None:
    """Two additional ignored rows change neither the loss nor the gradient."""
    short, long = loss_and_gradient([0, 2]), loss_and_gradient([0, 2, -100, -100])
    assert short[0] == long[0]
    np.testing.assert_array_equal(short[1], long[1][:2])
    assert not long[1][2:].any()


def test_invalid_labels_make_the_loss_nan() -> None:
    loss, gradient = loss_and_gradient([0, 3])
    assert np.isnan(loss)
    assert np.isnan(gradient[1]).all()
    assert not np.isnan(gradient[0]).any()
