"""Convolutional nets, and a graph of all other ops, with seeded weights and no framework.

Constants that become text must not come from floating-point functions whose last bit depends on the
machine: scalars here are literals.
"""

import numpy as np

from pockengine.compiler.ir import F32, I32, I64, Graph, TensorType, Value
from pockengine.tests.compiler.small_nets import NetBuilder

PICTURE = 32
CLASSES = 10


def _pictures(name: str, batch: int, size: int = PICTURE) -> tuple[NetBuilder, Value, Value]:
    net = NetBuilder(name)
    x = net.g.input("x", TensorType(F32, (batch, size, size, 3)))
    return net, x, net.g.input("target", TensorType(I64, (batch,)))


def mobile_net(batch: int = 4, size: int = PICTURE) -> Graph:
    """A small MobileNetV2 with its names: a stem, inverted residuals, a last unit, the head."""
    net, x, target = _pictures("mobile", batch, size)
    y = net.relu6(net.batch_norm(net.conv(x, "features.0.0", 16, 3, stride=2), "features.0.1"))
    plan = ((16, 1), (24, 2), (24, 1), (32, 2), (32, 1))
    for index, (channels, stride) in enumerate(plan, 1):
        y = _inverted_residual(net, y, f"features.{index}.conv", channels, stride)
    y = net.relu6(net.batch_norm(net.conv(y, "features.6.0", 96, 1), "features.6.1"))
    pooled = net.g.reduce_mean(y, axes=(1, 2))
    logits = net.g.matmul(pooled, net.weight("classifier.1.weight", 96, CLASSES))
    logits = net.g.add(logits, net.weight("classifier.1.bias", CLASSES))
    net.g.output("loss", net.g.cross_entropy(logits, target))
    net.g.output("output", logits)
    return net.g.graph


def _inverted_residual(net: NetBuilder, x: Value, name: str, channels: int, stride: int) -> Value:
    wide = 4 * x.shape[3]
    y = net.relu6(net.batch_norm(net.conv(x, f"{name}.0.0", wide, 1), f"{name}.0.1"))
    y = net.conv(y, f"{name}.1.0", wide, 3, stride=stride, groups=wide)
    y = net.relu6(net.batch_norm(y, f"{name}.1.1"))
    y = net.batch_norm(net.conv(y, f"{name}.2", channels, 1), f"{name}.3")
    return net.g.add(x, y) if x.shape == y.shape else y


def residual_net(batch: int = 4, size: int = PICTURE) -> Graph:
    """A small ResNet with its names: 7x7 stem, max pooling, basic blocks of 3x3, the head."""
    net, x, target = _pictures("resnet", batch, size)
    y = net.g.relu(net.batch_norm(net.conv(x, "conv1", 32, 7, stride=2), "bn1"))
    y = net.g.max_pool2d(y, kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1))
    for stage, (channels, stride) in enumerate(((32, 1), (64, 2)), 1):
        y = _basic_block(net, y, f"layer{stage}.0", channels, stride)
        y = _basic_block(net, y, f"layer{stage}.1", channels, 1)
    return net.head(y, CLASSES, target)


def _basic_block(net: NetBuilder, x: Value, name: str, channels: int, stride: int) -> Value:
    y = net.conv(x, f"{name}.conv1", channels, 3, stride=stride)
    y = net.g.relu(net.batch_norm(y, f"{name}.bn1"))
    y = net.batch_norm(net.conv(y, f"{name}.conv2", channels, 3), f"{name}.bn2")
    if x.shape != y.shape:
        x = net.conv(x, f"{name}.downsample.0", channels, 1, stride=stride)
        x = net.batch_norm(x, f"{name}.downsample.1")
    return net.g.relu(net.g.add(x, y))


def plain_net(batch: int, size: int = 16) -> Graph:
    """Convolutions with biases and no norm, so that padding the batch changes no result."""
    net, x, target = _pictures("plain", batch, size)
    y = x
    for index, (channels, stride) in enumerate(((8, 2), (16, 1), (16, 2))):
        y = net.conv(y, f"block{index}.conv1.0", channels, 3, stride=stride)
        y = net.g.hard_swish(net.g.add(y, net.weight(f"block{index}.conv1.0.bias", channels)))
    pooled = net.g.reduce_mean(y, axes=(1, 2))
    logits = net.g.matmul(pooled, net.weight("head.weight", 16, CLASSES))
    net.g.output("loss", net.g.cross_entropy(logits, target))
    net.g.output("output", logits)
    return net.g.graph


def other_ops() -> Graph:
    """Ops that the models here lack, each an output: moves, scans, pools, gathers, integers."""
    net = NetBuilder("other_ops")
    g = net.g
    x = g.input("x", TensorType(F32, (2, 9, 9, 6)))
    index = g.input("index", TensorType(I64, (2, 9, 9, 1)))
    rows = g.input("rows", TensorType(I64, (5,)))
    y = g.add(x, net.weight("shift", 6))
    made = {
        "transposed": g.transpose(y, perm=(0, 3, 2, 1)),
        "padded": g.pad(y, low=(0, 1, 1, 0), high=(0, 2, 1, 0), value=-1.0),
        "sliced": g.slice(y, start=(0, 1, 0, 0), stop=(2, 9, 9, 6), step=(1, 2, 3, 1)),
        "reversed": g.reverse(y, axes=(1,)),
        "joined": g.emit("concat", y, g.exp(y), axis=3).result,
        "picked": g.pick(y, axis=1, index=(0, 3, 3, 8)),
        "argmax": g.argmax(y, axis=3),
        "cumsum": g.cumsum(y, axis=2, reverse=True),
        "averaged": g.avg_pool2d(y, kernel=(2, 2), stride=(2, 2), padding=(0, 1, 0, 1)),
        "largest": g.reduce_max(y, axes=(1, 2)),
        "least": g.reduce_min(y, axes=(3,)),
        "product": g.reduce_prod(y, axes=(3,)),
        "along": g.take_along(y, index, axis=3),
        "rows": g.take(net.weight("table", 20, 6), rows, axis=0),
        "dropped": g.dropout(y, _seed(net), p=0.25, stream=0),
        "log_softmax": g.log_softmax(y),
        "whole": g.cast(g.floor(y), dtype="i32"),
        "chosen": g.where(g.gt(y, g.scalar(0.5)), g.erf(y), g.atan2(y, x)),
        "dilated": g.conv2d(y, net.weight("w", 3, 3, 3, 8), dilation=(2, 2), groups=2),
        "rest": g.quotient(index, g.constant(np.full((1,), 3), "three")),
    }
    for name, value in made.items():
        g.output(name, value)
    return g.graph


def _seed(net: NetBuilder) -> Value:
    return net.g.input("seed", TensorType(I32, ()))
