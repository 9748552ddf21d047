"""Update nodes as elementwise arithmetic: what a backend emits, and what fuses with a gradient.

The same formulas as in compiler/ops/update.py, which says what each of them is.
"""

from collections.abc import Callable, Sequence

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Node, Value

Formula = Callable[[Builder, Node, Sequence[Value]], list[Value]]
"""Builds the new contents of each written operand from the operands' current elements."""


def _decayed(g: Builder, node: Node, param: Value, grad: Value) -> Value:
    """grad + weight_decay param."""
    decay = node.attrs["weight_decay"]
    return g.add(grad, g.mul(param, g.scalar(decay))) if decay else grad


def _shrunk(g: Builder, node: Node, param: Value, lr: Value) -> Value:
    """param (1 - lr weight_decay)."""
    decay = node.attrs["weight_decay"]
    if not decay:
        return param
    return g.mul(param, g.sub(g.scalar(1.0), g.mul(lr, g.scalar(decay))))


def _blend(g: Builder, old: Value, new: Value, keep: float) -> Value:
    """keep old + (1 - keep) new."""
    return g.add(g.mul(old, g.scalar(keep)), g.mul(new, g.scalar(1.0 - keep)))


def _sgd(g: Builder, node: Node, current: Sequence[Value]) -> list[Value]:
    param, grad, lr = current[:3]
    momentum = g.scalar(node.attrs["momentum"])
    step = _decayed(g, node, param, grad)
    if len(current) == 3:
        return [g.sub(param, g.mul(lr, step))]
    velocity = g.add(g.mul(current[3], momentum), step)
    ahead = g.add(step, g.mul(velocity, momentum)) if node.attrs["nesterov"] else velocity
    return [g.sub(param, g.mul(lr, ahead)), velocity]


def _adam(g: Builder, node: Node, current: Sequence[Value]) -> list[Value]:
    param, grad, lr, rate, root, first, second = current
    if node.attrs["decoupled"]:
        param = _shrunk(g, node, param, lr)
    else:
        grad = _decayed(g, node, param, grad)
    first = _blend(g, first, grad, node.attrs["beta1"])
    second = _blend(g, second, g.square(grad), node.attrs["beta2"])
    below = g.add(g.mul(g.sqrt(second), root), g.scalar(node.attrs["eps"]))
    return [g.sub(param, g.div(g.mul(rate, first), below)), first, second]


def _scaled(g: Builder, node: Node, grad: Value, square: Value) -> Value:
    """grad / (sqrt(square) + eps)."""
    return g.div(grad, g.add(g.sqrt(square), g.scalar(node.attrs["eps"])))


def _rmsprop(g: Builder, node: Node, current: Sequence[Value]) -> list[Value]:
    param, grad, lr, square = current[:4]
    grad = _decayed(g, node, param, grad)
    square = _blend(g, square, g.square(grad), node.attrs["alpha"])
    step = _scaled(g, node, grad, square)
    if len(current) == 4:
        return [g.sub(param, g.mul(lr, step)), square]
    velocity = g.add(g.mul(current[4], g.scalar(node.attrs["momentum"])), step)
    return [g.sub(param, g.mul(lr, velocity)), square, velocity]


def _adagrad(g: Builder, node: Node, current: Sequence[Value]) -> list[Value]:
    param, grad, lr, square = current
    grad = _decayed(g, node, param, grad)
    square = g.add(square, g.square(grad))
    return [g.sub(param, g.mul(lr, _scaled(g, node, grad, square))), square]


def _lion(g: Builder, node: Node, current: Sequence[Value]) -> list[Value]:
    param, grad, lr, first = current
    direction = g.sign(_blend(g, first, grad, node.attrs["beta1"]))
    moved = g.sub(_shrunk(g, node, param, lr), g.mul(lr, direction))
    return [moved, _blend(g, first, grad, node.attrs["beta2"])]


def _ema(g: Builder, node: Node, current: Sequence[Value]) -> list[Value]:
    state, value = current
    momentum = node.attrs["momentum"]
    moved = g.mul(value, g.scalar(momentum * node.attrs["scale"]))
    return [g.add(g.mul(state, g.scalar(1.0 - momentum)), moved)]


def _add(g: Builder, node: Node, current: Sequence[Value]) -> list[Value]:
    state, value = current
    return [g.add(state, g.mul(value, g.scalar(node.attrs["scale"])))]


def _assign(g: Builder, node: Node, current: Sequence[Value]) -> list[Value]:
    return [current[1]]


FORMULAS: dict[str, Formula] = {
    "sgd_update": _sgd,
    "adam_update": _adam,
    "rmsprop_update": _rmsprop,
    "adagrad_update": _adagrad,
    "lion_update": _lion,
    "ema_update": _ema,
    "add_update": _add,
    "assign": _assign,
}
