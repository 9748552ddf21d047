"""From a forward graph to a training graph: gradients of what trains, and its updates."""

from collections.abc import Mapping

from pockengine.compiler.autodiff import Channels, backward
from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.compiler.optimizers import Optimizer
from pockengine.compiler.sparse.scheme import channel_axis
from pockengine.errors import CompileError

LOSS = "loss"
LEARNING_RATE = "lr"


def differentiate(graph: Graph, trained: Mapping[str, Channels], optimizer: Optimizer) -> None:
    """Append the backward pass of output `loss` and one update for each trained parameter.

    Adds the scalar input `lr`. CompileError when there is no loss or it does not depend on a
    parameter that should train.
    """
    if LOSS not in graph.outputs:
        known = ", ".join(graph.outputs)
        raise CompileError(f"graph {graph.name} has no output {LOSS!r} to train on; it has {known}")
    axes = {
        name: channel_axis("the scheme", graph, graph.params[name])
        for name, channels in trained.items()
        if channels is not None
    }
    g = Builder(graph)
    wrt = {graph.params[name].value: channels for name, channels in trained.items()}
    gradients = backward(g, graph.outputs[LOSS], wrt)
    lr = g.input(LEARNING_RATE, TensorType(F32, ()))
    for param, channels in wrt.items():
        if param not in gradients:
            raise CompileError(
                f"parameter {param.name} does not influence the loss, so it cannot train; freeze it"
            )
        optimizer.update(g, param, gradients[param], lr, axes.get(param.name), channels)
