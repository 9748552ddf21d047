"""From a forward graph to a training graph: gradients of the trained parameters, and their
updates.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pockengine.compiler.autodiff import Channels, backward
from pockengine.compiler.controls import RATE, SEED
from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.contents import Filled
from pockengine.compiler.ir.graph import LOSS, Graph, ParamKind, Value
from pockengine.compiler.ir.rewrite import Rule, lower
from pockengine.compiler.ir.types import f32
from pockengine.compiler.ir.writes import delay_writes
from pockengine.compiler.ops.custom import COTANGENT, CUSTOM
from pockengine.compiler.ops.elementwise import STOP
from pockengine.compiler.ops.random import NOISE_STREAM, normal
from pockengine.compiler.optim import STATE_PREFIX, Optimizer, Sgd, Update
from pockengine.compiler.optim.base import control
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.cleanup.dead_code import DeadCode
from pockengine.compiler.sparse.scheme import channel_axis
from pockengine.errors import CompileError


@dataclass(frozen=True)
class Clip:
    """Limits on gradients: each element to +-`value`, then all together to the 2-norm `norm`.

    `micro_norm` limits each micro-batch before averaging: with one row each, it is the per-example
    clipping of DP-SGD (arXiv 1607.00133). `noise` is the standard deviation of noise added to each
    element last: in DP-SGD, sigma times `micro_norm` over the number of micro-batches.
    """

    value: float | None = None
    norm: float | None = None
    micro_norm: float | None = None
    noise: float = 0.0

    def __post_init__(self) -> None:
        limits = (self.value, self.norm, self.micro_norm)
        if any(limit is not None and not limit > 0 for limit in limits):
            raise CompileError(f"{self}: a limit on gradients must be positive")
        if not 0 <= self.noise < math.inf:
            raise CompileError(f"{self}: noise has a standard deviation of 0 or more")


@dataclass(frozen=True)
class Differentiate(Pass):
    """Append the backward pass of output `loss` and one update for each trained parameter.

    Adds the inputs that the optimizer reads: `lr`, and `step` if needed. With several micro-batches
    the updates only add to states `optimizer.gradient.*`, for `apply_gradients` to use. With
    `rate_first` the loss's gradient is multiplied by `lr` once, if the gradients are used only for
    steps: differentiation is linear, so the steps are the same. CompileError if there is no loss,
    or if it does not depend on a parameter that should train.
    """

    trained: Mapping[str, Channels]
    optimizer: Optimizer
    clip: Clip = field(default_factory=Clip)
    micro_batches: int = 1
    rate_first: bool = False

    def run(self, graph: Graph) -> None:
        g, clip = Builder(graph), self.clip
        scaled = self._scales_first(graph)
        seed = control(g, RATE) if scaled else None
        updates = [replace(update, scaled=scaled) for update in _gradients(g, self.trained, seed)]
        delay_writes(graph)
        if self.micro_batches > 1:
            _collect(g, updates, clip, self.micro_batches)
            return
        _append_updates(g, updates, self.optimizer, clip)

    def _scales_first(self, graph: Graph) -> bool:
        """Whether steps are the rate times gradients, so that the rate may be applied first.

        A user-defined gradient may be nonlinear.
        """
        own = any(node.op == CUSTOM for node in graph.nodes)
        alone = self.rate_first and self.micro_batches == 1
        return alone and self.optimizer == Sgd() and self.clip == Clip() and not own


def _collect(g: Builder, updates: list[Update], clip: Clip, micro_batches: int) -> None:
    """Accumulate the gradients of one of several micro-batches."""
    grads = _clipped(g, [update.grad for update in updates], Clip(norm=clip.micro_norm))
    for update, grad in zip(updates, grads, strict=True):
        g.emit("add_update", update.state("gradient"), grad, scale=1 / micro_batches)


@dataclass(frozen=True)
class ApplyGradients(Pass):
    """Replace the graph by the updates from accumulated gradients, which it then resets to zero."""

    trained: Mapping[str, Channels]
    optimizer: Optimizer
    clip: Clip = field(default_factory=Clip)

    def run(self, graph: Graph) -> None:
        g = Builder(graph)
        axes = _axes(graph, self.trained)
        graph.nodes.clear()
        graph.outputs.clear()
        graph.inputs.clear()
        updates = []
        for name, channels in self.trained.items():
            param = graph.params[name]
            shape = list(param.value.shape)
            if channels is not None:
                shape[axes[name]] = len(channels)
            state = f"{STATE_PREFIX}gradient.{name}"
            zeros = Filled(f32(*shape))
            total = g.param(state, zeros, trainable=False, kind=ParamKind.OPTIMIZER)
            updates.append(Update(g, param, total, axis=axes.get(name), channels=channels))
        _append_updates(g, updates, self.optimizer, self.clip)
        for update in updates:
            g.emit("assign", update.grad, g.scalar(0.0))


@dataclass(frozen=True)
class DropStops(Pass):
    """Remove ops that only differentiation reads. Requires: differentiation is done, or not needed.

    Leaves: no `stop_gradient`, and no user-defined gradient.
    """

    def run(self, graph: Graph) -> None:
        rules: dict[str, Rule] = {
            STOP: lambda g, node: (node.operands[0],),
            CUSTOM: lambda g, node: (node.operands[0],),
            COTANGENT: lambda g, node: (g.broadcast_to(g.scalar(0.0), shape=node.attrs["shape"]),),
        }
        lower(graph, rules)
        DeadCode().run(graph)  # the gradient formulas


def _gradients(g: Builder, trained: Mapping[str, Channels], seed: Value | None) -> list[Update]:
    graph = g.graph
    if LOSS not in graph.outputs:
        known = ", ".join(graph.outputs)
        raise CompileError(
            f"graph {graph.name} has no output {LOSS!r} to train on, only {known}; say which loss "
            f"by loss= or --loss, or let the model return an output {LOSS!r}"
        )
    axes = _axes(graph, trained)
    for name in trained:
        if name not in graph.params:  # dead code is removed already, and what only it read
            raise _without_influence(name)
    wrt = {graph.params[name].value: channels for name, channels in trained.items()}
    gradients = backward(g, graph.outputs[LOSS], wrt, seed)
    updates = []
    for value, channels in wrt.items():
        if value not in gradients:
            raise _without_influence(value.name)
        param = graph.params[value.name]
        updates.append(
            Update(g, param, gradients[value], axis=axes.get(value.name), channels=channels)
        )
    return updates


def _without_influence(name: str) -> CompileError:
    return CompileError(
        f"parameter {name} does not influence the loss, so it cannot train; freeze it"
    )


def _append_updates(g: Builder, updates: list[Update], optimizer: Optimizer, clip: Clip) -> None:
    grads = _noisy(g, _clipped(g, [update.grad for update in updates], clip), clip.noise)
    for update, grad in zip(updates, grads, strict=True):
        optimizer.update(replace(update, grad=grad))


def _clipped(g: Builder, grads: list[Value], clip: Clip) -> list[Value]:
    if clip.value is not None:
        grads = [g.clamp(grad, min=-clip.value, max=clip.value) for grad in grads]
    if clip.norm is None:
        return grads
    total = None
    for grad in grads:
        square = g.square(grad)
        axes = tuple(range(len(grad.shape)))
        part = g.reduce_sum(square, axes=axes) if axes else square
        total = part if total is None else g.add(total, part)
    assert total is not None  # a scheme trains at least one parameter
    room = g.div(g.scalar(clip.norm), g.add(g.sqrt(total), g.scalar(1e-6)))  # as PyTorch does
    factor = g.minimum(g.scalar(1.0), room)
    return [g.mul(grad, factor) for grad in grads]


def _noisy(g: Builder, grads: list[Value], noise: float) -> list[Value]:
    """Add normal noise to gradients, different at every step and in every element."""
    if not noise:
        return grads
    seed = control(g, SEED)
    return [
        g.add(grad, g.mul(normal(g, seed, grad.shape, NOISE_STREAM + 2 * place), g.scalar(noise)))
        for place, grad in enumerate(grads)
    ]


def _axes(graph: Graph, trained: Mapping[str, Channels]) -> dict[str, int]:
    return {
        name: channel_axis("the scheme", graph, graph.params[name])
        for name, channels in trained.items()
        if channels is not None
    }
