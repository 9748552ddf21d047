"""A tiny model and the digits data set, for tests that fine-tune in seconds."""

import numpy as np

from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Examples, Tuning, split

BATCH = 16


def tiny_subject(batch: int = BATCH, seed: int = 0, name: str = "tiny") -> Subject:
    """Return a model of two convolutions and a head for images [N, 8, 8, 1]."""
    random = np.random.default_rng(seed)
    g = Builder(Graph(name))
    hidden = g.input("x", TensorType(F32, (batch, 8, 8, 1)))
    target = g.input("target", TensorType(I64, (batch,)))
    for layer, (inputs, outputs) in enumerate([(1, 8), (8, 16)]):
        scale = np.sqrt(2 / (9 * inputs))
        weight = random.normal(0, scale, (3, 3, inputs, outputs)).astype(np.float32)
        hidden = g.conv2d(
            hidden, g.param(f"layers.{layer}.weight", weight), stride=(2, 2), padding=(1,) * 4
        )
        bias = g.param(f"layers.{layer}.bias", np.zeros(outputs, np.float32))
        hidden = g.relu(g.add(hidden, bias))
    flat = g.reshape(hidden, shape=(batch, 2 * 2 * 16))
    head = random.normal(0, 0.1, (64, 10)).astype(np.float32)
    bias = g.param("head.bias", np.zeros(10, np.float32))
    logits = g.add(g.matmul(flat, g.param("head.weight", head)), bias)
    g.graph.outputs |= {"loss": g.cross_entropy(logits, target), "logits": logits}
    return Subject(name, g.graph, "logits")


def digits(count: int = 400) -> Examples:
    """Return the first `count` of scikit-learn's digits."""
    from sklearn.datasets import load_digits  # here, so that trial workers do not import it

    data = load_digits()
    images = (data.images[:count, :, :, None] / 8 - 1).astype(np.float32)
    return Examples({"x": images}, data.target[:count].astype(np.int64))


def tiny_tuning(count: int = 400) -> Tuning:
    """Return the digits, split 3:1 into training and validation."""
    return split(digits(count), count // 4, seed=0)
