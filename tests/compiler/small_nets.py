"""Small forward graphs with a loss, in training mode, for tests of the whole compiler."""

import numpy as np

from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType, Value
from pockengine.compiler.ir.contents import ShapeOnly
from pockengine.compiler.ir.types import f32


class NetBuilder:
    """Adds layers with seeded random weights to one graph."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.g = Builder(Graph(name))
        self.rng = np.random.default_rng(seed)

    def weight(self, name: str, *shape: int, shift: float = 0.0) -> Value:
        data = shift + 0.3 * self.rng.standard_normal(shape)
        return self.g.param(name, data.astype(np.float32))

    def conv(
        self, x: Value, name: str, channels: int, k: int, *, stride: int = 1, groups: int = 1
    ) -> Value:
        w = self.weight(f"{name}.weight", k, k, x.shape[3] // groups, channels)
        return self.g.conv2d(x, w, padding=(k // 2,) * 4, stride=(stride, stride), groups=groups)

    def batch_norm(self, x: Value, name: str) -> Value:
        """Batch norm in training mode, with running statistics."""
        c, count = x.shape[-1], x.type.size // x.shape[-1]
        gamma = self.weight(f"{name}.weight", c, shift=1.0)
        beta = self.weight(f"{name}.bias", c)
        mean = self.g.param(f"{name}.running_mean", np.zeros(c, np.float32), trainable=False)
        var = self.g.param(f"{name}.running_var", np.ones(c, np.float32), trainable=False)
        y, batch_mean, batch_var = self.g.emit("batch_norm", x, gamma, beta, eps=1e-5).results
        self.g.emit("ema_update", mean, batch_mean, momentum=0.1)
        self.g.emit("ema_update", var, batch_var, momentum=0.1, scale=count / (count - 1))
        return y

    def relu6(self, x: Value) -> Value:
        return self.g.hardtanh(x, min=0.0, max=6.0)

    def head(self, x: Value, classes: int, target: Value) -> Graph:
        """Global pooling, a linear layer, cross entropy."""
        pooled = self.g.reduce_mean(x, axes=(1, 2))
        w = self.weight("fc.weight", pooled.shape[1], classes)
        y = self.g.add(self.g.matmul(pooled, w), self.weight("fc.bias", classes))
        self.g.output("loss", self.g.cross_entropy(y, target))
        self.g.output("output", y)
        return self.g.graph


class ShapeBuilder(NetBuilder):
    """Adds layers whose weights have a shape but no numbers."""

    def weight(self, name: str, *shape: int, shift: float = 0.0) -> Value:
        return self.g.param(name, ShapeOnly(f32(*shape)))


def residual_net(batch: int = 2, size: int = 6) -> Graph:
    """A stem, then an inverted residual block: depthwise and pointwise with a skip connection."""
    net = NetBuilder("residual")
    x = net.g.input("x", TensorType(F32, (batch, size, size, 4)))
    target = net.g.input("target", TensorType(I64, (batch,)))
    stem = net.relu6(net.batch_norm(net.conv(x, "a.0", 8, 3), "a.1"))
    deep = net.relu6(net.batch_norm(net.conv(stem, "b.0", 8, 3, groups=8), "b.1"))
    block = net.g.add(net.batch_norm(net.conv(deep, "c.0", 8, 1), "c.1"), stem)
    return net.head(block, 3, target)


def batches(count: int, batch: int = 2, size: int = 6) -> list[dict[str, np.ndarray]]:
    """Seeded inputs for `residual_net`, with a learning rate."""
    rng = np.random.default_rng(1)
    return [
        {
            "x": rng.standard_normal((batch, size, size, 4)).astype(np.float32),
            "target": rng.integers(0, 3, batch),
            "lr": np.asarray(0.1, np.float32),
        }
        for _ in range(count)
    ]


def attention_net(rows: int = 128, heads: int = 2, size: int = 8) -> Graph:
    """Causal self-attention over rows of `heads * size` numbers, then a mean and three classes."""
    net, width = NetBuilder("attention"), heads * size
    g = net.g
    x = g.input("x", TensorType(F32, (rows, width)))
    target = g.input("target", TensorType(I64, (1,)))
    parts = []
    for name in ("q", "k", "v"):
        y = g.matmul(x, net.weight(f"{name}.weight", width, width))
        parts.append(g.transpose(g.reshape(y, shape=(rows, heads, size)), perm=(1, 0, 2)))
    scores = g.mul(g.matmul(parts[0], parts[1], transpose_b=True), g.scalar(size**-0.5))
    causal = g.constant(np.tri(rows, dtype=np.bool_), "causal")
    weights = g.softmax(g.where(causal, scores, g.scalar(-np.inf)))
    mixed = g.transpose(g.matmul(weights, parts[2]), perm=(1, 0, 2))
    pooled = g.reduce_mean(g.reshape(mixed, shape=(1, rows, width)), axes=(1,))
    g.output("loss", g.cross_entropy(g.matmul(pooled, net.weight("fc.weight", width, 3)), target))
    return g.graph
