"""Custom gradients of a PyTorch model, traced with the model.

`torch.autograd.Function` and `Tensor.register_hook` act outside the traced operators. While
tracing, `apply` runs forward and then backward on a stand-in of the cotangent, and internal
operators attach gradients to tensors (`compiler/ops/custom.py`). Untraceable ones are refused by
name. An `apply` that was bound before the trace (`f = Mine.apply`) is PyTorch's own, compiled since
2.14, so `forward` of each Function is replaced as well.
"""

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.utils.checkpoint as checkpoints
from torch import nn
from torch.autograd import Function
from torch.fx.experimental.proxy_tensor import PreDispatchTorchFunctionMode as PreDispatch
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils.hooks import RemovableHandle

from pockengine.errors import ImportModelError
from pockengine.frontends.faults import theirs
from pockengine.frontends.torch.decisions import traced_node
from pockengine.frontends.torch.replaced import replaced

LIBRARY = torch.library.Library("pockengine", "DEF")
LIBRARY.define("cotangent(Tensor y) -> Tensor")
LIBRARY.define("custom_gradient(Tensor y, Tensor cotangent, Tensor[] x, Tensor[] dx) -> Tensor")
LIBRARY.define("hooked_(Tensor(a!) x, Tensor cotangent, Tensor dx) -> Tensor(a!)")
KEY = "CompositeExplicitAutograd"
LIBRARY.impl("cotangent", torch.empty_like, KEY)
LIBRARY.impl("custom_gradient", lambda y, cotangent, x, dx: y.clone(), KEY)
LIBRARY.impl("hooked_", lambda x, cotangent, dx: x, KEY)
OPS = torch.ops.pockengine

RECOMPUTED = checkpoints.CheckpointFunction
SAVED_INPUTS = getattr(checkpoints, "_NoopSaveInputs", None)
"""The Function by which releases before 2.8 recompute; it has no backward."""
SWITCHES = (torch.set_grad_enabled, torch._C._set_grad_enabled)
"""Context managers that turn gradients on and off in a trace."""


class _Saved:
    """Context shared by a Function's forward and backward."""

    def __init__(self, args: tuple[Any, ...]) -> None:
        self.needs_input_grad = tuple(_is_float(x) for x in args)
        self.saved_tensors: tuple[Any, ...] = ()
        self.constant_outputs: tuple[Any, ...] = ()
        self.written: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Only forward-mode differentiation reads these."""

    def mark_non_differentiable(self, *outputs: Any) -> None:
        self.constant_outputs = outputs

    def mark_dirty(self, *inputs: Any) -> None:
        self.written = inputs

    def set_materialize_grads(self, value: bool) -> None:
        """Outputs without a gradient are refused, so nothing is to be filled in."""


@contextmanager
def own_gradients(module: nn.Module) -> Iterator[None]:
    """Honour the module's own gradients while it is traced."""
    _check_hooks(module)
    inference = torch.autograd.grad_mode.inference_mode
    with ExitStack() as stack:
        stack.enter_context(replaced(Function, "apply", classmethod(traced_function)))
        for function in _subclasses(Function):
            stand_in = staticmethod(_stand_in(function, torch.is_grad_enabled()))
            stack.enter_context(replaced(function, "forward", stand_in))
        stack.enter_context(replaced(PreDispatch, "__torch_function__", _switch))
        stack.enter_context(replaced(torch.Tensor, "register_hook", _traced_hook))
        stack.enter_context(replaced(inference, "__enter__", _enter_inference))
        stack.enter_context(replaced(inference, "__exit__", _leave_inference))
        yield


RECORD = PreDispatch.__torch_function__


def _switch(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Turn gradients on and off while they are traced; old releases only record it."""
    result = RECORD(mode, func, types, args, kwargs)
    if func is torch._C._set_grad_enabled:
        func(*args)
    return result


def _subclasses(function: type[Any]) -> list[type[Any]]:
    direct: list[type[Any]] = function.__subclasses__()
    return [*direct, *(below for part in direct for below in _subclasses(part))]


def _stand_in(function: Any, ambient: bool) -> Callable[..., Any]:
    """Return a `forward` for a Function whose `apply` was bound before the trace.

    PyTorch's `apply` turns gradients off around `forward`, which the trace does not see. So they
    are off here and on in the trace exactly where `apply` called and a gradient matters.
    """
    forward = function.forward

    @functools.wraps(forward)
    def stand_in(*args: Any) -> Any:
        if torch.is_grad_enabled() or not _records_gradients(ambient):
            return theirs(forward, *args)
        torch.set_grad_enabled(True)  # as in the trace; PyTorch's `apply` restores its own
        return traced_function(function, *(args if _has_setup(function) else args[1:]))

    return stand_in


def _records_gradients(ambient: bool) -> bool:
    """Whether the current trace takes gradients at this point."""
    mode = get_proxy_mode()
    if mode is None:
        return False
    switches = (x for x in reversed(mode.tracer.graph.nodes) if x.target in SWITCHES)
    return next((bool(switch.args[0]) for switch in switches), ambient)


def traced_function(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Trace a Function's forward, and its backward as the gradient of the result."""
    if function is RECOMPUTED:  # to recompute is our compiler's own decision
        return theirs(args[0], *args[2:])
    if function is SAVED_INPUTS:
        return torch.empty(0)  # without a gradient, so PyTorch calls the function plainly
    args = _positional(function, args, kwargs)
    saved = _Saved(args)
    with torch.no_grad():
        outputs = _forward(function, saved, args)
    if saved.written:
        raise _refusal(function, "writes to its input (mark_dirty); let forward return a new one")
    flat = outputs if isinstance(outputs, tuple) else (outputs,)
    trained = [y for y in flat if _is_float(y) and not _among(y, saved.constant_outputs)]
    if not trained or not any(saved.needs_input_grad):
        return outputs
    if len(trained) > 1:
        raise _refusal(function, "returns several tensors with gradients; write one for each")
    result = _with_gradient(function, saved, args, y=trained[0], outputs=flat)
    replaced = tuple(result if y is trained[0] else y for y in flat)
    return replaced if isinstance(outputs, tuple) else replaced[0]


def _positional(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Bind arguments as PyTorch does: defaults count as inputs where there is a setup_context."""
    if not _has_setup(function):
        if kwargs:
            raise _refusal(function, "is applied to named arguments; give them by their places")
        return args
    bound = theirs(inspect.signature(function.forward).bind, *args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise _refusal(function, "has keyword-only arguments; let forward take them by place")
    return bound.args


def _has_setup(function: Any) -> bool:
    return function.setup_context is not Function.setup_context


def _forward(function: Any, saved: _Saved, args: tuple[Any, ...]) -> Any:
    if not _has_setup(function):
        return theirs(function.forward, saved, *args)
    outputs = theirs(function.forward, *args)
    theirs(function.setup_context, saved, args, outputs)
    return outputs


def _with_gradient(
    function: Any, saved: _Saved, args: tuple[Any, ...], y: Any, outputs: tuple[Any, ...]
) -> Any:
    """Return an output whose gradient is that of backward."""
    with torch.no_grad():
        cotangent = OPS.cotangent(y)
        cotangents = [cotangent if out is y else None for out in outputs]
        gradients = theirs(function.backward, saved, *cotangents)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        pairs = [
            (x, dx.sum_to_size(x.shape))
            for x, dx in zip(args, gradients, strict=False)
            if _is_float(x) and dx is not None
        ]
    return OPS.custom_gradient(y, cotangent, [x for x, _ in pairs], [dx for _, dx in pairs])


def _traced_hook(tensor: torch.Tensor, hook: Callable[..., Any]) -> Any:
    """Replace the gradient of a traced tensor by a hook's result."""
    node = traced_node(tensor)
    if node is None or not tensor.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    name = getattr(hook, "__qualname__", type(hook).__name__)
    if node.op != "call_function" or node.users:
        raise ImportModelError(
            f"the hook {name} is registered on a parameter, an input, or a tensor that was read "
            "before; register it right after the tensor is computed"
        )
    with torch.no_grad():
        cotangent = OPS.cotangent(tensor)
        gradient = theirs(hook, cotangent)
    if gradient is None:
        raise ImportModelError(
            f"the hook {name} returns no gradient: it only looks, and no Python runs in a compiled "
            "step; remove it while compiling"
        )
    OPS.hooked_(tensor, cotangent, gradient)
    return RemovableHandle(OrderedDict())


def _enter_inference(mode: Any) -> None:
    """Record no gradients, as inference mode does; the trace knows only `no_grad`."""
    mode._recorded = torch.is_grad_enabled()
    if mode.mode:
        torch.set_grad_enabled(False)


def _leave_inference(mode: Any, *error: Any) -> None:
    torch.set_grad_enabled(mode._recorded)


def _check_hooks(module: nn.Module) -> None:
    """Refuse hooks on gradients that are registered outside forward."""
    for path, part in module.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            raise ImportModelError(
                f"module {path or type(module).__name__} has a backward hook, which a compiled "
                "step does not run; remove it, or change the gradient by a torch.autograd.Function"
            )
    for path, parameter in module.named_parameters():
        hooks = parameter._backward_hooks, parameter._post_accumulate_grad_hooks
        if any(hooks):
            raise ImportModelError(
                f"parameter {path} has a hook on its gradient, which a compiled step does not run; "
                "remove it (`clip` limits gradients)"
            )


def _refusal(function: Any, fact: str) -> ImportModelError:
    return ImportModelError(f"the torch.autograd.Function {function.__name__} {fact}")


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _among(tensor: Any, others: tuple[Any, ...]) -> bool:
    return any(tensor is other for other in others)
