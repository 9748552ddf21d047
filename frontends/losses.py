"""Losses added to models that return only predictions."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pockengine.compiler.ir import F32, I64, Builder, TensorType
from pockengine.compiler.ir.graph import LOSS
from pockengine.errors import ImportModelError
from pockengine.frontends.emit import loss as emit_loss
from pockengine.frontends.layout import Tensor, plain
from pockengine.frontends.probabilities import LOGITS, OPEN, PROBABILITIES, as_logits

LOSSES = {
    OPEN: "logits or probabilities (N, C, ...), recognized as either, and labels (N, ...)",
    LOGITS: "logits, and labels",
    PROBABILITIES: "probabilities, and labels",
    "mse": "predictions, and f32 targets of their shape",
}
"""Losses that each frontend can add, with their inputs."""
OWN = "own"
"""Loss of a model that returns its own."""
TARGET = "target"
T = TypeVar("T")


def add_loss(g: Builder, output: Tensor, loss: str) -> None:
    """Add an input `target` for the model's output, and the loss between the two as an output.

    Cross entropy of probabilities is that of their logarithms: see `probabilities.py`.
    """
    if any(value.name == TARGET for value in g.graph.inputs):
        raise ImportModelError(
            f"{g.graph.name} has an input named {TARGET!r} already, which loss={loss!r} would add; "
            "rename it, or return the loss from the model"
        )
    if loss == "mse":
        target = plain(g.input(TARGET, TensorType(F32, output.shape)))
        value = emit_loss.mean_squared_error(g, output, target)
    else:
        if output.rank < 2:
            raise ImportModelError(
                f"cross entropy needs logits of shape (batch, classes), not {output.shape}"
            )
        check_classes(output.shape[1])
        labels = (output.shape[0], *output.shape[2:])
        target = plain(g.input(TARGET, TensorType(I64, labels)))
        value = emit_loss.cross_entropy(g, as_logits(g, output, loss), target)
    g.output("loss", value.value)


def check_classes(count: int) -> None:
    """Raise ImportModelError for a cross entropy of fewer than two classes."""
    if count < 2:
        raise ImportModelError(
            f"the model's output has {count} class, for which cross entropy is always 0; name the "
            "loss that it is made for, as loss='mse' (--loss mse), or return it from the model"
        )


def loss_text(loss: Any) -> str:
    """Describe a loss: its name, or the losses of several outputs."""
    if isinstance(loss, str):
        return loss
    if isinstance(loss, Mapping):
        return ", ".join(f"{name}: {loss_text(one)}" for name, one in loss.items())
    if isinstance(loss, list):
        return ", ".join(map(loss_text, loss))
    if isinstance(loss, tuple):
        return f"{loss[1]:g} {loss_text(loss[0])}"
    return str(getattr(loss, "name", getattr(loss, "__name__", loss)))


def is_loss(output: Tensor) -> bool:
    """Whether an output can be minimized: a single float32 number."""
    return output.rank == 0 and output.dtype is F32


def with_loss_named(outputs: Mapping[str, T], is_loss: Callable[[T], bool]) -> dict[str, T]:
    """Return outputs by name; if none is named `loss`, the only candidate is.

    In a tuple, as transformers returns it, or in a file of ONNX the loss has no name.
    """
    found = [name for name, output in outputs.items() if is_loss(output)]
    if LOSS in outputs or len(found) != 1:
        return dict(outputs)
    return {LOSS if name in found else name: output for name, output in outputs.items()}
