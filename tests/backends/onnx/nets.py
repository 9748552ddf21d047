"""The benchmark's nets in full size as graphs, with seeded weights and without a framework."""

import math
from collections.abc import Callable

import numpy as np

from pockengine.compiler.ir import F32, I64, Graph, TensorType, Value
from pockengine.farm.references.nets import convolutional_net
from pockengine.models.registry import parse_model
from pockengine.tests.compiler.small_nets import NetBuilder
from pockengine.tests.compiler.transformers import Sizes, bert_net, llama_net

CLASSES = 10
GATES = {"weight": 0.5, "bias": 3.0}
LLAMA = Sizes(layers=2, hidden=128, heads=4, ffn=344, vocabulary=1000)
MINILM = Sizes(layers=6, hidden=384, heads=12, ffn=1536, vocabulary=30522)


class GraphLayers(NetBuilder):
    """Layers of `farm/references/nets.py` as nodes of a graph."""

    def convolution(self, x: Value, name: str, filters: int, kernel: int, stride: int = 1) -> Value:
        return self.conv(x, name, filters, kernel, stride=stride)

    def depthwise(self, x: Value, name: str, kernel: int, stride: int) -> Value:
        channels = x.shape[3]
        return self.conv(x, name, channels, kernel, stride=stride, groups=channels)

    def linear(self, x: Value, name: str, outputs: int) -> Value:
        y = self.g.matmul(x, self.weight(f"{name}.weight", x.shape[1], outputs))
        return self.g.add(y, self.weight(f"{name}.bias", outputs))

    def relu(self, x: Value, most: float | None = None) -> Value:
        return self.g.relu(x) if most is None else self.g.hardtanh(x, min=0.0, max=most)

    def add(self, x: Value, y: Value) -> Value:
        return self.g.add(x, y)

    def max_pool(self, x: Value) -> Value:
        return self.g.max_pool2d(x, kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1))

    def global_average(self, x: Value) -> Value:
        return self.g.reduce_mean(x, axes=(1, 2))


def pictures(model: str, batch: int) -> Graph:
    """A convolutional net of the registry, or ResNet-20, with its loss."""
    layers = GraphLayers(model)
    size = int(model.rpartition("-")[2])
    x = layers.g.input("x", TensorType(F32, (batch, size, size, 3)))
    target = layers.g.input("target", TensorType(I64, (batch,)))
    if model.startswith("resnet20"):
        logits = _resnet20(layers, x)
    else:
        logits = convolutional_net(layers, x, parse_model(model), CLASSES)
    layers.g.output("loss", layers.g.cross_entropy(logits, target))
    layers.g.output("output", logits)
    return tamed(layers.g.graph)


def _resnet20(net: GraphLayers, x: Value) -> Value:
    x = net.relu(net.batch_norm(net.convolution(x, "conv1", 16, 3), "bn1"))
    for stage, channels in enumerate((16, 32, 64), 1):
        for block in range(3):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = net.convolution(x, f"{name}.conv1", channels, 3, stride)
            y = net.convolution(
                net.relu(net.batch_norm(y, f"{name}.bn1")), f"{name}.conv2", channels, 3
            )
            y = net.batch_norm(y, f"{name}.bn2")
            if x.shape != y.shape:
                x = net.convolution(x, f"{name}.downsample.0", channels, 1, stride)
                x = net.batch_norm(x, f"{name}.downsample.1")
            x = net.relu(net.add(x, y))
    return net.linear(net.global_average(x), "fc", CLASSES)


def minilm(batch: int, length: int) -> Graph:
    """An encoder of MiniLM-L6's shape with a classifier."""
    return tamed(bert_net(batch, length, MINILM))


def tamed(graph: Graph) -> Graph:
    """Choose weights that do not amplify rounding: weights keep the scale, and ReLU6 stays open.

    Batch norms output a mean of 3 and a deviation of 0.5, so almost no number is near 0 or 6.
    """
    for name, param in graph.params.items():
        layer, _, kind = name.rpartition(".")
        if f"{layer}.running_var" in graph.params and kind in GATES:
            param.data = np.full_like(param.data, GATES[kind])
        elif param.data.ndim > 1:
            spread = math.sqrt(2 / math.prod(param.data.shape[:-1]))
            param.data = (param.data * np.float32(spread / param.data.std())).astype(np.float32)
    return graph


NETS: dict[str, tuple[Callable[[], Graph], str]] = {
    "mobilenet_v2": (lambda: pictures("mobilenet_v2-0.35-96", 8), "features.1?.conv.2.weight"),
    "mcunet": (lambda: pictures("mcunet-96", 4), "*.pointwise2.conv.weight"),
    "resnet20": (lambda: pictures("resnet20-32", 8), "*.conv2.weight"),
    "minilm": (lambda: minilm(4, 32), "*.query.weight"),
    "llama": (lambda: tamed(llama_net(2, 32, LLAMA)), "*.q_proj.weight"),
}
"""Each net with the weights that LoRA adapts."""
