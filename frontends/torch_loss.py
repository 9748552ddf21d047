"""A loss that the user gives as a function: the module is traced together with it.

    loss(outputs, target)    what forward returns, then tensors of the user's own, here `target`

The loss's further parameters become inputs of the graph under their own names.
"""

import copy
import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from pockengine.errors import ImportModelError

Loss = Callable[..., Any]


def with_loss(module: nn.Module, loss: Loss) -> nn.Module:
    """Return a copy of the module whose forward takes the loss's tensors too, by their names.

    It returns (outputs, loss) and shares all parameters and submodules, under their names.
    """
    kind, names = type(module), loss_inputs(module, loss)

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        given = [kwargs.pop(name) for name in names]
        outputs = kind.forward(self, *args, **kwargs)
        return outputs, loss(outputs, *given)

    parameters = list(inspect.signature(kind.forward).parameters.values())
    rest = [each for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD]
    extra = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    kept = [each for each in parameters if each not in rest]
    forward.__signature__ = inspect.Signature([*kept, *extra, *rest])  # type: ignore[attr-defined]
    wrapped = copy.copy(module)
    wrapped.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    return wrapped


def loss_inputs(module: nn.Module, loss: Loss) -> list[str]:
    """Name the loss's parameters after the outputs, those with a default left out.

    Raises ImportModelError when there is none, or when forward has one of the same name.
    """
    function = loss.forward if isinstance(loss, nn.Module) else loss
    parameters = list(inspect.signature(function).parameters.values())
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or any(each.kind not in plain for each in parameters[:1]):
        raise ImportModelError("the loss must take the model's outputs: loss(outputs, target)")
    names = [
        each.name
        for each in parameters[1:]
        if each.kind in plain and each.default is inspect.Parameter.empty
    ]
    clashing = sorted(set(names) & set(inspect.signature(module.forward).parameters))
    if clashing:
        raise ImportModelError(
            f"the loss and {type(module).__name__}.forward both have a parameter {clashing[0]!r}; "
            "rename the loss's"
        )
    return names


def split_examples(given: Any, names: list[str]) -> tuple[Any, dict[str, Any]]:
    """Split example inputs into the module's and the loss's: by name, or the last ones.

    Raises ImportModelError when the loss's are missing.
    """
    if isinstance(given, dict):
        missing = [name for name in names if name not in given]
        own = {name: given[name] for name in names if name in given}
        rest: Any = {name: value for name, value in given.items() if name not in own}
    else:
        count = len(given) - len(names)
        missing = names if count < 1 else []
        own = dict(zip(names, given[max(count, 0) :], strict=False))
        rest = tuple(given[: max(count, 0)])
    if missing:
        raise ImportModelError(
            f"the loss takes {', '.join(names)} besides the outputs; give examples of them after "
            "the model's own inputs, or by name"
        )
    return rest, own
