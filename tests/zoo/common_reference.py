"""The two common models in our own ops: the expected result of every frontend."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from pockengine.compiler.ir import I64, Builder, Graph, TensorType, Value
from pockengine.compiler.ir.types import f32
from pockengine.frontends.emit import activation as emit_activation
from pockengine.frontends.layout import plain
from pockengine.tests.zoo import common


class Net:
    """A graph under construction, with its weights as params by name."""

    def __init__(self, model: str) -> None:
        self.g = Builder(Graph(model))
        self.params = {name: self.g.param(name, x) for name, x in common.weights(model).items()}

    def batch_norm(self, x: Value, name: str) -> Value:
        """Normalize by the batch and keep running statistics."""
        g, count = self.g, x.type.size // x.shape[-1]
        scale, shift = self.params[f"{name}.scale"], self.params[f"{name}.shift"]
        y, mean, var = g.emit("batch_norm", x, scale, shift, eps=common.EPSILON).results
        for kind, value, factor in (("mean", mean, 1.0), ("var", var, count / (count - 1))):
            start = np.full(x.shape[-1:], float(kind == "var"), np.float32)
            running = g.param(f"{name}.{kind}", start, trainable=False)
            g.emit("ema_update", running, value, momentum=0.1, scale=factor)
        return y

    def block(self, x: Value, name: str) -> Value:
        """Convolve and normalize."""
        kernel = self.params[f"{name}.kernel"]
        pad = kernel.shape[0] // 2
        return self.batch_norm(self.g.conv2d(x, kernel, padding=(pad,) * 4), name)

    def linear(self, x: Value, name: str) -> Value:
        """Multiply the rows of x and add a bias."""
        g, kernel = self.g, self.params[f"{name}.kernel"]
        rows = g.reshape(x, shape=(x.type.size // x.shape[-1], x.shape[-1]))
        y = g.add(g.matmul(rows, kernel), self.params[f"{name}.bias"])
        return g.reshape(y, shape=(*x.shape[:-1], kernel.shape[1]))

    def layer_norm(self, x: Value, name: str) -> Value:
        """Normalize each row."""
        g = self.g
        y = g.emit("layer_norm", x, eps=common.EPSILON).results[0]
        return g.add(g.mul(y, self.params[f"{name}.scale"]), self.params[f"{name}.shift"])

    def finished(self, logits: Value) -> Graph:
        """Add the loss to the logits."""
        target = self.g.input("target", TensorType(I64, (common.BATCH,)))
        self.g.output("loss", self.g.cross_entropy(logits, target))
        self.g.output("output", logits)
        return self.g.graph


def resnet() -> Graph:
    """Build the residual net."""
    net = Net("resnet")
    g = net.g
    x = g.input("x", f32(common.BATCH, common.SIDE, common.SIDE, 3))
    x = g.relu(net.block(x, "stem"))
    y = g.relu(net.block(x, "a1"))
    x = g.relu(g.add(x, net.block(y, "a2")))
    x = g.max_pool2d(x, kernel=(2, 2), stride=(2, 2))
    y = g.relu(net.block(x, "b1"))
    x = g.relu(g.add(net.block(x, "skip"), net.block(y, "b2")))
    return net.finished(net.linear(g.reduce_mean(x, axes=(1, 2)), "head"))


def transformer() -> Graph:
    """Build the transformer."""
    net = Net("transformer")
    g = net.g
    words = g.input("words", TensorType(I64, (common.BATCH, common.LENGTH)))
    x = g.add(g.take(net.params["embedding"], words, axis=0), net.params["positions"])
    y = net.layer_norm(x, "before_attention")
    split = (common.BATCH, common.LENGTH, common.HEADS, common.WIDTH // common.HEADS)
    query, key, value = (
        g.transpose(g.reshape(net.linear(y, name), shape=split), perm=(0, 2, 1, 3))
        for name in ("query", "key", "value")
    )
    factor = g.scalar(1 / math.sqrt(split[-1]))
    scores = g.mul(g.matmul(query, key, transpose_b=True), factor)
    mixed = g.transpose(g.matmul(g.softmax(scores), value), perm=(0, 2, 1, 3))
    x = g.add(x, net.linear(g.reshape(mixed, shape=x.shape), "out"))
    wide = plain(net.linear(net.layer_norm(x, "before_mlp"), "wide"))
    x = g.add(x, net.linear(emit_activation.gelu(g, wide, "tanh").value, "narrow"))
    mean = g.reduce_mean(net.layer_norm(x, "before_head"), axes=(1,))
    return net.finished(net.linear(mean, "head"))


REFERENCE: Mapping[str, Callable[[], Graph]] = {"resnet": resnet, "transformer": transformer}

if __name__ == "__main__":
    from pockengine.tests.zoo.common_measure import report

    report(REFERENCE)
