"""Update nodes as elementwise arithmetic: backends emit it, and it fuses with a gradient.

The same formulas as in compiler/ops/update.py, which documents each; an `elementwise_update` has
its own.
"""

from collections.abc import Callable, Sequence

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.inline import inline

Formula = Callable[[Builder, Node, Sequence[Value]], list[Value]]
"""Builds the new contents of each written operand from the operands' current elements."""


def decayed(g: Builder, param: Value, grad: Value, decay: float) -> Value:
    """grad + decay param."""
    return g.add(grad, g.mul(param, g.scalar(decay))) if decay else grad


def shrunk(g: Builder, param: Value, lr: Value, decay: float) -> Value:
    """param (1 - lr decay)."""
    if not decay:
        return param
    return g.mul(param, g.sub(g.scalar(1.0), g.mul(lr, g.scalar(decay))))


def blend(g: Builder, old: Value, new: Value, keep: float) -> Value:
    """keep old + (1 - keep) new."""
    return g.add(g.mul(old, g.scalar(keep)), g.mul(new, g.scalar(1.0 - keep)))


def _sgd(g: Builder, node: Node, current: Sequence[Value]) -> list[Value]:
    param, grad, lr = current[:3]
    momentum = g.scalar(node.attrs["momentum"])
    step = decayed(g, param, grad, node.attrs["weight_decay"])
    if len(current) == 3:
        return [g.sub(param, g.mul(lr, step))]
    velocity = g.add(g.mul(current[3], momentum), step)
    ahead = g.add(step, g.mul(velocity, momentum)) if node.attrs["nesterov"] else velocity
    return [g.sub(param, g.mul(lr, ahead)), velocity]


def _adam(g: Builder, node: Node, current: Sequence[Value]) -> list[Value]:
    param, grad, lr, rate, root, first, second = current
    if node.attrs["decoupled"]:
        param = shrunk(g, param, lr, node.attrs["weight_decay"])
    else:
        grad = decayed(g, param, grad, node.attrs["weight_decay"])
    first = blend(g, first, grad, node.attrs["beta1"])
    second = blend(g, second, g.square(grad), node.attrs["beta2"])
    below = g.add(g.mul(g.sqrt(second), root), g.scalar(node.attrs["eps"]))
    return [g.sub(param, g.div(g.mul(rate, first), below)), first, second]


def scaled(g: Builder, grad: Value, square: Value, eps: float) -> Value:
    """grad / (sqrt(square) + eps)."""
    return g.div(grad, g.add(g.sqrt(square), g.scalar(eps)))


def _rmsprop(g: Builder, node: Node, current: Sequence[Value]) -> list[Value]:
    param, grad, lr, square = current[:4]
    grad = decayed(g, param, grad, node.attrs["weight_decay"])
    square = blend(g, square, g.square(grad), node.attrs["alpha"])
    step = scaled(g, grad, square, node.attrs["eps"])
    if len(current) == 4:
        return [g.sub(param, g.mul(lr, step)), square]
    velocity = g.add(g.mul(current[4], g.scalar(node.attrs["momentum"])), step)
    return [g.sub(param, g.mul(lr, velocity)), square, velocity]


def _adagrad(g: Builder, node: Node, current: Sequence[Value]) -> list[Value]:
    param, grad, lr, square = current
    grad = decayed(g, param, grad, node.attrs["weight_decay"])
    square = g.add(square, g.square(grad))
    return [g.sub(param, g.mul(lr, scaled(g, grad, square, node.attrs["eps"]))), square]


def _lion(g: Builder, node: Node, current: Sequence[Value]) -> list[Value]:
    param, grad, lr, first = current
    direction = g.sign(blend(g, first, grad, node.attrs["beta1"]))
    moved = g.sub(shrunk(g, param, lr, node.attrs["weight_decay"]), g.mul(lr, direction))
    return [moved, blend(g, first, grad, node.attrs["beta2"])]


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


def _body(g: Builder, node: Node, current: Sequence[Value]) -> list[Value]:
    return inline(g, node.attrs["body"], current)


FORMULAS: dict[str, Formula] = {
    "sgd_update": _sgd,
    "adam_update": _adam,
    "rmsprop_update": _rmsprop,
    "adagrad_update": _adagrad,
    "lion_update": _lion,
    "ema_update": _ema,
    "add_update": _add,
    "assign": _assign,
    "elementwise_update": _body,
}
