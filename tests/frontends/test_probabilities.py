"""Cross entropy of probabilities, in whatever form a model computes them, and of logits."""

from collections.abc import Callable

import numpy as np
import pytest

from pockengine.compiler.ir import F32, Builder, Graph, TensorType, Value
from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.layout import permute, plain
from pockengine.frontends.losses import add_loss

ROWS, CLASSES = 4, 5
X = np.random.default_rng(0).standard_normal((ROWS, 6)).astype(np.float32)
WEIGHT = np.random.default_rng(1).standard_normal((6, CLASSES)).astype(np.float32) * 3
TARGET = np.array([0, 1, 0, 1])


def spelled(g: Builder, x: Value) -> Value:
    """Softmax as JAX exporters write it."""
    e = g.exp(g.sub(x, g.reduce_max(x, axes=(1,), keepdims=True)))
    return g.div(e, g.reduce_sum(e, axes=(1,), keepdims=True))


def clipped(g: Builder, x: Value) -> Value:
    """Softmax, clipped as in Keras's older losses."""
    return g.minimum(g.maximum(g.softmax(x), g.scalar(1e-7)), g.scalar(1 - 1e-7))


def two_sided(g: Builder, x: Value) -> Value:
    """Both probabilities of a logistic regression."""
    p = g.sigmoid(g.slice(x, start=(0, 0), stop=(ROWS, 1), step=(1, 1)))
    return g.concat(g.sub(g.scalar(1.0), p), p, axis=1)


def unguarded(g: Builder, x: Value) -> Value:
    """Softmax without subtraction of the maximum."""
    return g.div(g.exp(x), g.reduce_sum(g.exp(x), axes=(1,), keepdims=True))


def grouped(g: Builder, x: Value) -> Value:
    """Probabilities of groups of classes: softmax times a matrix of zeros and ones."""
    groups = np.eye(2, dtype=np.float32)[[0, 0, 1, 1, 1]]
    return g.matmul(g.softmax(x), g.constant(groups))


def through_integers(g: Builder, x: Value) -> Value:
    """Softmax rounded as in int8 files; training uses the logits."""
    scale = g.scalar(1 / 256)
    q = g.quantize(g.softmax(x), scale, dtype="i8", zero=-128)
    return g.dequantize(g.reshape(q, shape=(ROWS, CLASSES)), scale, zero=-128)


Tail = Callable[[Builder, Value], Value]
PROBABILITIES: dict[str, Tail] = {
    "softmax": lambda g, x: g.softmax(x),
    "softmax, reshape": lambda g, x: g.reshape(
        g.softmax(g.reshape(x, shape=(ROWS, 1, CLASSES))), shape=(ROWS, CLASSES)
    ),
    "softmax, clip": clipped,
    "spelled out": spelled,
    "without a maximum": unguarded,
    "log softmax, exp": lambda g, x: g.exp(g.log_softmax(x)),
    "smoothed": lambda g, x: g.add(g.mul(g.softmax(x), g.scalar(0.9)), g.scalar(0.1 / CLASSES)),
    "both sides": two_sided,
    "groups": grouped,
}
LOGITS: dict[str, Tail] = {
    "a product": lambda g, x: x,
    "relu": lambda g, x: g.relu(x),
    "log softmax": lambda g, x: g.log_softmax(x),
    "tiny": lambda g, x: g.mul(x, g.scalar(1e-8)),
    "a head of zeros": lambda g, x: g.matmul(
        x, g.param("head", np.zeros((CLASSES, CLASSES), np.float32))
    ),
    "divided": lambda g, x: g.div(x, g.scalar(2.0)),
}
UNCLEAR: dict[str, Tail] = {
    "lies between 0 and 1": lambda g, x: g.sigmoid(x),
    "probabilities along dimension 0": lambda g, x: g.transpose(
        g.softmax(g.transpose(x, perm=(1, 0))), perm=(1, 0)
    ),
}


def outputs_and_loss(tail: Tail, loss: str = "cross_entropy") -> tuple[np.ndarray, float]:
    """Return the outputs of a linear layer followed by `tail`, and their loss."""
    g = Builder(Graph("net"))
    x, w = g.input("x", TensorType(F32, X.shape)), g.param("w", WEIGHT)
    y = tail(g, g.matmul(x, w))
    add_loss(g, plain(y), loss)
    g.output("y", y)
    found = run(g.graph, {"x": X, "target": TARGET})
    return found["y"].astype(np.float64), float(found["loss"])


def entropy(scores: np.ndarray) -> float:
    """Cross entropy of logits."""
    shifted = scores - scores.max(1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return float(-logs[np.arange(ROWS), TARGET].mean())


@pytest.mark.parametrize("tail", PROBABILITIES.values(), ids=PROBABILITIES)
def test_probabilities_are_traced_through_ops_that_preserve_them(tail: Tail) -> None:
    scores, loss = outputs_and_loss(tail)

    assert loss == pytest.approx(entropy(np.log(scores)), rel=1e-5)
    assert abs(loss - entropy(scores)) > 0.1  # the loss if they were treated as logits


@pytest.mark.parametrize("tail", LOGITS.values(), ids=LOGITS)
def test_logits_stay_logits(tail: Tail) -> None:
    scores, loss = outputs_and_loss(tail)

    assert loss == pytest.approx(entropy(scores), rel=1e-5)


@pytest.mark.parametrize("message", UNCLEAR)
def test_for_unclear_outputs_the_error_names_explicit_losses(message: str) -> None:
    tail = UNCLEAR[message]
    with pytest.raises(ImportModelError, match=f"{message}.*cross_entropy_probabilities"):
        outputs_and_loss(tail)

    scores, loss = outputs_and_loss(tail, "cross_entropy_logits")
    assert loss == pytest.approx(entropy(scores), rel=1e-5)
    if "0 and 1" in message:
        scores, loss = outputs_and_loss(tail, "cross_entropy_probabilities")
        assert loss == pytest.approx(entropy(np.log(scores)), rel=1e-5)


def test_a_softmax_rounded_to_integers_gives_its_logits() -> None:
    exact, rounded = outputs_and_loss(lambda g, x: g.softmax(x)), outputs_and_loss(through_integers)

    assert rounded[1] == pytest.approx(exact[1], rel=1e-6)


def test_classes_are_found_in_any_layout() -> None:
    g = Builder(Graph("map"))
    x = g.param("x", np.random.default_rng(2).standard_normal((2, 3, 3, CLASSES)).astype("f4"))
    output = permute(plain(g.softmax(x)), (0, 3, 1, 2))  # channels-first, stored unchanged
    add_loss(g, output, "cross_entropy")
    target = np.zeros((2, 3, 3), np.int64)

    loss = float(run(g.graph, {"target": target})["loss"])

    logits = g.graph.params["x"].data.astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert loss == pytest.approx(-np.log(shares[..., 0]).mean(), rel=1e-5)


def test_classes_in_another_dimension_are_reported() -> None:
    g = Builder(Graph("map"))
    scores = g.softmax(g.param("x", np.ones((2, 3, 4), np.float32)))

    with pytest.raises(ImportModelError, match="probabilities along dimension 2"):
        add_loss(g, plain(scores), "cross_entropy")
