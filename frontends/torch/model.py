"""PyTorch modules through `torch.export`: the public face of the PyTorch frontend.

`from_torch` converts a user's module (train or eval mode, any parameter names) to a forward
`Graph`; `to_state_dict` exports tuned weights. torch is imported when they are called.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir import Graph
from pockengine.errors import ImportModelError
from pockengine.frontends.dtypes import USE
from pockengine.frontends.losses import LOSSES
from pockengine.frontends.source_arrays import source_arrays

if TYPE_CHECKING:
    import torch
    from torch import nn

Inputs = Sequence[Any] | Mapping[str, Any]
Loss = str | Callable[..., Any] | None


def from_torch(
    module: "nn.Module", example_inputs: Inputs, *, loss: Loss = None, integers: bool = False
) -> Graph:
    """Import a module as a forward graph.

    `example_inputs` are the positional (sequence) or named (mapping) arguments of `forward`; their
    shapes and types become the graph's. The graph's inputs carry the names of forward's parameters,
    and its params the module's own names; a frozen parameter (requires_grad False) stays frozen.
    Parameters that forward does not use are left out. Parameters on the device `meta` are imported
    as shapes, and `ir/attach.py` adds the numbers.

    16-bit types become float32, without autocast, with a warning. In train() mode batch norm
    updates its running statistics, in eval() mode they are frozen.

    `loss` "cross_entropy" (labels: int64) or "mse" adds an input `target` for the module's first
    output and an output `loss`. A function or module `loss(outputs, target, ...)` is traced with
    the model: examples of its further parameters (without default) follow the model's own in
    `example_inputs`, and become inputs with their names. A module that returns one scalar is taken
    to return its loss.

    A loss's own parameters train too, as `loss.` and their names. Random numbers are ours: dropout
    and stochastic depth are none when predicting, noise that forward draws itself stays. A module
    of `convert_pt2e` is imported with the real values of its integers, under the names of its
    buffers; with `integers`, activations are rounded and weights stored as in the module.

    ImportModelError names everything that cannot be imported, with its place.
    """
    torch = _torch("from_torch")
    _check_module(torch, module)
    if isinstance(loss, str) and loss not in LOSSES:
        raise ImportModelError(
            f"unknown loss {loss!r}; known are {', '.join(LOSSES)}, or give a function"
        )
    args, kwargs = checked_inputs(torch, module, example_inputs, loss)
    return _imported(module, args, kwargs, loss=loss, integers=integers)


def _check_module(torch: Any, module: Any) -> None:
    if not isinstance(module, torch.nn.Module):
        raise ImportModelError(
            f"from_torch takes a torch.nn.Module, not {type(module).__name__}; wrap a function in "
            "a module whose forward calls it"
        )
    for path, part in module.named_modules():
        # A part that was traced can be traced again.
        kind = torch.jit.RecursiveScriptModule if path else torch.jit.ScriptModule
        if isinstance(part, kind):
            place = f" at {path!r}" if path else ""
            raise ImportModelError(
                f"from_torch takes no {type(part).__name__}{place}, whose code is TorchScript; "
                "give the module that it was made of"
            )
    for name, parameter in module.named_parameters():
        if torch.nn.parameter.is_lazy(parameter):
            raise ImportModelError(
                f"parameter {name!r} has no shape yet; run the module once on example inputs"
            )


def _imported(
    module: "nn.Module", args: tuple[Any, ...], kwargs: dict[str, Any], loss: Loss, integers: bool
) -> Graph:
    from pockengine.frontends.integer_weights import store_integers
    from pockengine.frontends.torch.floats import in_floats, warn_of_floats
    from pockengine.frontends.torch.graph import import_program
    from pockengine.frontends.torch.loss import with_loss
    from pockengine.frontends.torch.modes import warn_of_modes
    from pockengine.frontends.torch.observers import check_observers
    from pockengine.frontends.torch.quantized import as_real
    from pockengine.frontends.torch.trace import trace

    check_observers(module)
    module, integer_weights = as_real(module, integers)
    if callable(loss):
        module = with_loss(module, loss)
    with in_floats(module) as changes:
        graph = import_program(trace(module, args, kwargs), module, loss)
        warn_of_modes(module, args, kwargs, graph)
    warn_of_floats(module, changes)
    store_integers(graph, integer_weights, integers)
    return graph


def to_state_dict(
    graph: Graph,
    values: Mapping[str, np.ndarray] | None = None,
    module: "nn.Module | None" = None,
    steps: int = 0,
) -> "dict[str, torch.Tensor]":
    """Return parameters and states as PyTorch tensors, in PyTorch's order of dimensions.

    `values` maps some or all names to arrays of the compiled program; the default is the graph's
    initial data. With `module`, the imported one, the result is its complete state_dict: parameters
    that the program does not have (frozen, unused) are the module's own, and the counters of batch
    norms are increased by `steps`.

    Raises ImportModelError for a name or shape that the graph does not have.
    """
    torch = _torch("to_state_dict")
    arrays = source_arrays(graph, values)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if module is None:
        return tensors
    from pockengine.frontends.torch.params import whole_state

    return whole_state(module, graph, tensors, steps)


def _torch(caller: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise ImportModelError(
            f"{caller} needs PyTorch, which is not installed; install it with "
            "`pip install torch` (2.6 or newer)"
        ) from error
    return torch


def resize_examples(
    module: "nn.Module",
    example_inputs: Inputs,
    axes: Mapping[str, int],
    size: int,
    loss: Loss = None,
) -> "dict[str, torch.Tensor]":
    """Name the example inputs as forward does, with `size` along the dimensions in `axes`.

    Elements are repeated or dropped. A loss's own examples keep the names of its parameters. Raises
    ImportModelError as `from_torch` does.
    """
    torch = _torch("resize_examples")
    args, kwargs = checked_inputs(torch, module, example_inputs, loss)
    names = list(inspect.signature(module.forward).parameters)
    resized = {**dict(zip(names, args, strict=False)), **kwargs}
    for name, axis in axes.items():
        if name in resized:
            index = torch.arange(size) % resized[name].shape[axis]
            resized[name] = resized[name].index_select(axis, index)
    return resized


def checked_inputs(
    torch: Any, module: "nn.Module", examples: Inputs, loss: Loss
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Split the example inputs into positional and named ones, all tensors of a known type.

    A loss's own are named ones.
    """
    name = type(module).__name__
    if isinstance(examples, torch.Tensor):
        examples = (examples,)
    named = isinstance(examples, Mapping)
    if not named and not isinstance(examples, (tuple, list)):
        raise ImportModelError(
            f"the example inputs of {name} must be a tuple of tensors or a dict of named ones, not "
            f"{type(examples).__name__}"
        )
    _check_types(torch, name, examples)
    own: dict[str, Any] = {}
    if callable(loss):
        from pockengine.frontends.torch.loss import loss_inputs, split_examples

        examples, own = split_examples(examples, loss_inputs(module, loss))
    args, kwargs = (
        ((), {**examples, **own}) if isinstance(examples, Mapping) else (tuple(examples), own)
    )
    return _apart(args, kwargs)


def _apart(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copy a tensor that is passed twice: a trace would treat it as one input.

    Those of 16 bits become float32.
    """
    from pockengine.frontends.torch.floats import as_float

    seen: set[int] = set()

    def own(tensor: Any) -> Any:
        if id(tensor) in seen:
            return as_float(tensor).clone()
        seen.add(id(tensor))
        return as_float(tensor)

    return tuple(map(own, args)), {name: own(tensor) for name, tensor in kwargs.items()}


def _check_types(torch: Any, name: str, examples: Inputs) -> None:
    from pockengine.frontends.torch.floats import HALVES
    from pockengine.frontends.torch.params import DTYPES

    items = examples.items() if isinstance(examples, Mapping) else enumerate(examples)
    for key, value in items:
        if not isinstance(value, torch.Tensor):
            raise ImportModelError(
                f"example input {key!r} of {name} is a {type(value).__name__}, not a torch.Tensor"
            )
        if value.dtype not in (*DTYPES, *HALVES):
            raise ImportModelError(f"example input {key!r} of {name} is {value.dtype}; {USE}")
        if value.numel() == 0:
            raise ImportModelError(
                f"example input {key!r} of {name} has the empty shape {tuple(value.shape)}"
            )
