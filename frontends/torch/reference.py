"""PyTorch's own loss and gradients on the example inputs."""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from pockengine.compiler.ir.graph import LOSS
from pockengine.frontends.losses import with_loss_named
from pockengine.frontends.probabilities import CROSS_ENTROPIES, LEAST, takes_logarithm
from pockengine.frontends.reference import Nudge, Reference, draw_target
from pockengine.frontends.torch.floats import as_float, in_floats
from pockengine.frontends.torch.halves import HALVES
from pockengine.frontends.torch.loss import with_loss
from pockengine.frontends.torch.model import Loss, checked_inputs
from pockengine.frontends.torch.outputs import output_names
from pockengine.frontends.torch.quantized import as_real


def reference(module: nn.Module, example_inputs: Any, loss: Loss, nudge: Nudge) -> Reference:
    """Run the module and autograd once; its buffers and the random numbers' state stay.

    Dropout modules are to be off already, by `without_dropout`.
    """
    args, kwargs = checked_inputs(torch, module, example_inputs, loss)
    module, _ = as_real(module, integers=False)
    args, kwargs = pytree.tree_map(lambda x: _nudged(x, nudge), (args, kwargs))
    called = with_loss(module, loss) if callable(loss) else module
    feed = {
        name: x.detach().numpy().copy() for name, x in _named(called.forward, args, kwargs).items()
    }
    with in_floats(called), torch.random.fork_rng(devices=[]), torch.enable_grad():
        state = _state(module, nudge)
        predicted = _predicted(called, state, (args, kwargs), callable(loss))
        trained = {name: x for name, x in state.items() if x.requires_grad}

        def step() -> tuple[torch.Tensor, tuple[torch.Tensor | None, ...] | None]:
            value = _loss(called(*args, **kwargs), loss, feed)
            return value, _gradients(value, list(trained.values()))

        value, grads = _with_state(called, state, step)
    if grads is None:
        return Reference(feed, float(value.detach()), None, predicted)
    gradients = {
        name: (torch.zeros_like(x) if grad is None else grad).detach().numpy().copy()
        for (name, x), grad in zip(trained.items(), grads, strict=True)
    }
    return Reference(feed, float(value.detach()), gradients, predicted)


class _Calling(nn.Module):
    """Calls a function that uses the module."""

    def __init__(self, module: nn.Module, function: Callable[[], Any]) -> None:
        super().__init__()
        self.module, self.function = module, function

    def forward(self) -> Any:
        return self.function()


def _with_state(
    module: nn.Module, state: Mapping[str, torch.Tensor], function: Callable[[], Any]
) -> Any:
    """Call a function while the module has this state.

    The backward pass belongs in it: `torch.utils.checkpoint` calls the module again there.
    """
    own = {f"module.{name}": x for name, x in state.items()}
    return torch.func.functional_call(_Calling(module, function), own, ())


def _gradients(
    value: torch.Tensor, trained: list[torch.Tensor]
) -> tuple[torch.Tensor | None, ...] | None:
    """Return the gradients; None if PyTorch has no derivative of one of its operators."""
    try:
        return torch.autograd.grad(value, trained, allow_unused=True)
    except RuntimeError as error:  # NotImplementedError is one
        if "not implemented" not in str(error):
            raise
        return None


def _predicted(
    module: nn.Module,
    state: Mapping[str, torch.Tensor],
    inputs: tuple[tuple[Any, ...], Mapping[str, Any]],
    own_loss: bool,
) -> dict[str, np.ndarray]:
    """Return the outputs in evaluation mode by name; empty if there is no other mode."""
    training = [part for part in module.modules() if part.training]
    if not training:
        return {}
    try:
        _set_training(training, False)
        results = torch.func.functional_call(module, dict(state), *inputs)
    except Exception:  # the model's own code, which may support only training
        return {}
    finally:
        _set_training(training, True)
    flat, spec = pytree.tree_flatten(results)
    named = zip(output_names(spec, len(flat), own_loss), flat, strict=True)
    outputs = {name: x for name, x in named if isinstance(x, torch.Tensor)}
    return {name: as_float(x.detach()).numpy().copy() for name, x in outputs.items()}


def _set_training(parts: Iterable[nn.Module], training: bool) -> None:
    """Set the mode of these modules alone, without `train`, which an exported module refuses."""
    for part in parts:
        part.training = training


@contextmanager
def without_dropout(module: nn.Module, drawing: Collection[str] = ()) -> Iterator[None]:
    """Turn the module's dropout layers off for a while.

    Of the modules with these paths, which draw, those without weights or other modules go too.
    """
    layers = [
        layer
        for path, layer in module.named_modules()
        if isinstance(layer, nn.modules.dropout._DropoutNd)
        or (path in drawing and _is_plain(layer))
    ]
    layers = [layer for layer in layers if layer.training]
    _set_training(layers, False)
    try:
        yield
    finally:
        _set_training(layers, True)


def _is_plain(layer: nn.Module) -> bool:
    """Whether a module has no other modules, weights or buffers, as stochastic depth."""
    return not [*layer.children(), *layer.parameters(), *layer.buffers()]


def _state(module: nn.Module, nudge: Nudge) -> dict[str, torch.Tensor]:
    """Copy parameters and buffers; tied ones once, under their first name."""
    state = {name: x.detach().clone() for name, x in module.named_buffers()}
    for name, x in module.named_parameters():
        state[name] = _nudged(x.detach(), nudge).clone().requires_grad_(x.requires_grad)
    return state


def _nudged(x: Any, nudge: Nudge) -> Any:
    if isinstance(x, torch.Tensor) and x.dtype is torch.float32:
        return torch.from_numpy(nudge(x.detach().cpu().numpy()))
    return x.clone() if isinstance(x, torch.Tensor) else x


def _named(
    forward: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, torch.Tensor]:
    """Name the inputs as forward's parameters are."""
    signature = inspect.signature(forward)
    named: dict[str, torch.Tensor] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named.update({f"{name}_{index}": x for index, x in enumerate(value)})
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    return named


def _is_loss(output: torch.Tensor) -> bool:
    return output.dim() == 0 and output.dtype.is_floating_point


def _loss(results: Any, loss: Loss, feed: dict[str, np.ndarray]) -> torch.Tensor:
    """Return the loss of the call's result; a target that is drawn joins the feed."""
    if callable(loss):
        value: torch.Tensor = results[1]
        return value
    flat, spec = pytree.tree_flatten(results)
    if loss is None:
        names = output_names(spec, len(flat), own_loss=False)
        outputs = {n: x for n, x in zip(names, flat, strict=True) if isinstance(x, torch.Tensor)}
        return with_loss_named(outputs, _is_loss).get(LOSS, flat[0])
    output = next(x for x in flat if isinstance(x, torch.Tensor))
    output = output.float() if output.dtype in HALVES else output
    feed["target"] = draw_target(loss, tuple(output.shape))
    target = torch.from_numpy(feed["target"])
    if loss not in CROSS_ENTROPIES:
        return nn.functional.mse_loss(output, target)
    if takes_logarithm(loss, output.detach().cpu().numpy()):
        output = output.clamp_min(LEAST).log()
    return nn.functional.cross_entropy(output, target)
