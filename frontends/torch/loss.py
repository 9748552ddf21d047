"""A user-defined loss function: the module is traced together with it.

    loss(outputs, target)    what forward returns, then tensors of the user's own, here `target`

The loss's further parameters become inputs of the graph under their own names. Its own parameters
(centers of classes, a learned temperature) trains with the model: `loss.weight`.
"""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import nn

from pockengine.errors import ImportModelError

Loss = Callable[..., Any]


def with_loss(module: nn.Module, loss: Loss) -> nn.Module:
    """Return a copy of the module whose forward takes the loss's tensors too, by their names.

    It returns (outputs, loss) and shares all parameters and submodules, under their names. The loss
    is a submodule `loss`, or `loss_module` if the module already has a `loss`.
    """
    kind, names = type(module), loss_inputs(module, loss)
    own = vars(module).get("forward")  # of torch.compile, for example
    trained, hidden = _trained_module(module, loss), _free_name(module)

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        arguments = [kwargs.pop(name) for name in names]
        with _without(self, hidden):
            outputs = (own or partial(kind.forward, self))(*args, **kwargs)
        return outputs, loss(outputs, *arguments)

    parameters = list(inspect.signature(kind.forward).parameters.values())
    if own:
        parameters = [*parameters[:1], *inspect.signature(own).parameters.values()]
    keywords = [p for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD]
    extra = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    named = [p for p in parameters if p not in keywords]
    forward.__signature__ = inspect.Signature([*named, *extra, *keywords])  # type: ignore[attr-defined]
    wrapped = copy.copy(module)
    vars(wrapped).pop("forward", None)
    wrapped.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    if trained is not None:
        wrapped.__dict__["_modules"] = {**module._modules, hidden: trained}
    return wrapped


@contextmanager
def _without(module: nn.Module, name: str) -> Iterator[None]:
    """Hide the loss: a Sequential would call it as its last layer."""
    whole = module._modules
    vars(module)["_modules"] = {key: part for key, part in whole.items() if key != name}
    try:
        yield
    finally:
        vars(module)["_modules"] = whole


def loss_state(module: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the loss's part of a state_dict, by the loss's own names."""
    if not isinstance(module, nn.Module):
        return {}
    own, prefix = _names(module), f"{_free_name(module)}."
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in state.items()
        if name not in own and name.startswith(prefix)
    }


def _names(module: nn.Module) -> set[str]:
    listings = (module.named_parameters, module.named_buffers)
    return {name for named in listings for name, _ in named(remove_duplicate=False)}


def _free_name(module: nn.Module) -> str:
    return "loss_module" if hasattr(module, "loss") else "loss"


def _trained_module(module: nn.Module, loss: Loss) -> nn.Module | None:
    """Return the module with the loss's parameters; None if it has none.

    For a function these are the modules that it names, each under the variable's name.
    """
    while isinstance(loss, partial):
        loss = loss.func
    loss = getattr(loss, "__self__", loss)
    own = {id(tensor) for tensor in module.parameters()}
    if isinstance(loss, nn.Module):
        return loss if _trains(loss, own) else None
    function = loss if inspect.isfunction(loss) else type(loss).__call__
    named = dict(vars(loss)) if function is not loss and hasattr(loss, "__dict__") else {}
    if inspect.isfunction(function):
        variables = inspect.getclosurevars(function)
        named.update({**variables.globals, **variables.nonlocals})
    holder = nn.Module()
    for name, value in named.items():
        if isinstance(value, nn.Parameter) and id(value) not in own:
            raise ImportModelError(
                f"the loss trains {name!r}, a Parameter that no module holds; make the loss a "
                "torch.nn.Module that has it"
            )
        if isinstance(value, nn.Module) and value is not module and _trains(value, own):
            holder.add_module(name, value)
    return holder if holder._modules else None


def _trains(module: nn.Module, own: set[int]) -> bool:
    """Return whether a module has trainable parameters in addition to the model's."""
    return any(tensor.requires_grad and id(tensor) not in own for tensor in module.parameters())


def loss_inputs(module: nn.Module, loss: Loss) -> list[str]:
    """Name the loss's parameters after the outputs, those with a default left out.

    Raises ImportModelError when there is none, or when forward has one of the same name.
    """
    function = loss
    if isinstance(loss, nn.Module) and type(loss).__call__ is nn.Module.__call__:
        function = loss.forward
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError as error:  # of a function in C
        raise ImportModelError(
            f"the parameters of the loss {function!r} are unknown; give a Python function that "
            "calls it: lambda outputs, target: ..."
        ) from error
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or any(parameter.kind not in plain for parameter in parameters[:1]):
        raise ImportModelError("the loss must take the model's outputs: loss(outputs, target)")
    names = [
        parameter.name
        for parameter in parameters[1:]
        if parameter.kind in plain and parameter.default is inspect.Parameter.empty
    ]
    clashing = sorted(set(names) & set(inspect.signature(module.forward).parameters))
    if clashing:
        raise ImportModelError(
            f"the loss and {type(module).__name__}.forward both have a parameter {clashing[0]!r}; "
            "rename the loss's"
        )
    return names


def split_examples(examples: Any, names: list[str]) -> tuple[Any, dict[str, Any]]:
    """Split example inputs into the module's and the loss's: by name, or the last ones.

    Raises ImportModelError when the loss's are missing.
    """
    if isinstance(examples, dict):
        missing = [name for name in names if name not in examples]
        own = {name: examples[name] for name in names if name in examples}
        others: Any = {name: value for name, value in examples.items() if name not in own}
    else:
        count = len(examples) - len(names)
        missing = names if count < 1 else []
        own = dict(zip(names, examples[max(count, 0) :], strict=False))
        others = tuple(examples[: max(count, 0)])
    if missing:
        raise ImportModelError(
            f"the loss takes {', '.join(names)} besides the outputs; give examples of them after "
            "the model's own inputs, or by name"
        )
    return others, own
