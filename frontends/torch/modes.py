"""Warn of a module that does more in evaluation mode than predictions can derive from training.

In predictions norms read their running statistics, dropout and stochastic depth pass everything,
and buffers stay. All else that forward does by `self.training` they do as in training.
"""

import copy
import types
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from pockengine.compiler.ir import Graph
from pockengine.frontends.emit.random import DRAWING
from pockengine.frontends.torch.decisions import copied_module

MODES = frozenset({"training", "batch_norm", "instance_norm"})
"""Names in the code of a class whose results may depend on the mode."""
CLOSE = 1e-3
"""Largest difference that counts as rounding, relative to the largest element."""
FLAGS = {
    "batch_norm": "training",
    "instance_norm": "use_input_stats",
    "multi_head_attention_forward": "training",
}
"""PyTorch's functions that take the mode, and its name there."""
DROPOUT = "dropout"
DROPOUT_SHARE = 4
"""Position of the share that attention drops."""

Inputs = tuple[Sequence[Any], Mapping[str, Any]]


def warn_of_modes(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], graph: Graph
) -> None:
    """Warn if predictions that are derived from training differ from the evaluation mode.

    `graph` is the imported module.
    """
    kinds = [kind for kind in dict.fromkeys(map(type, module.modules())) if _asks(kind)]
    training = any(getattr(part, "training", False) for part in module.modules())
    drawing = _drawing(graph)
    if not (kinds or drawing) or not training or any(x.is_meta for x in module.parameters()):
        return
    try:
        if drawing and not _draws(module, (args, kwargs)):
            found: type | None = type(dict(module.named_modules()).get(drawing[0], module))
        else:
            found = _differing(module, kinds, (args, kwargs))
    except Exception:  # the model's own code, which may support only training
        return
    if found is not None:
        warnings.warn(
            f"{found.__name__} computes something else in evaluation mode, and predictions are "
            "derived from the training step: predict and evaluate compute as in training; load "
            "the state_dict into the module and evaluate it in PyTorch, or compute the same in "
            "both modes",
            stacklevel=3,
        )


def _asks(kind: type) -> bool:
    """Whether code of this class, apart from PyTorch's own, may ask for the mode."""
    own = [part for part in kind.__mro__ if not part.__module__.startswith(("torch.", "builtins"))]
    members = [member for part in own for member in vars(part).values()]
    codes = [member.__code__ for member in members if isinstance(member, types.FunctionType)]
    return any(not MODES.isdisjoint(code.co_names) for code in codes)


def _drawing(graph: Graph) -> list[str]:
    """Return the paths of modules that draw random numbers, but dropout's, for predictions too."""
    read, paths = set(graph.outputs.values()), []
    for node in reversed(graph.nodes):
        if not read.isdisjoint(node.results):
            read.update(node.operands)
            if node.op in DRAWING and node.op != DROPOUT:
                paths.append(node.scope)
    return paths[::-1]


def _differing(module: nn.Module, kinds: list[type], inputs: Inputs) -> type | None:
    """Return a class by which they differ; None if none does, or if forward draws numbers."""
    expected, found = (_outputs(module, inputs, predicted) for predicted in (None, kinds))
    if _same(found, expected):
        return None
    again = [_outputs(module, inputs, predicted, seed=1) for predicted in (None, kinds)]
    if not (_same(again[0], expected) and _same(again[1], found)):
        return None
    if not _same(_outputs(module, inputs, ()), expected):
        return type(module)  # it keeps the statistics of batches in evaluation mode
    differ = (kind for kind in kinds if not _same(_outputs(module, inputs, (kind,)), expected))
    return next(differ, type(module))


def _draws(module: nn.Module, inputs: Inputs) -> bool:
    """Whether the module draws random numbers in evaluation mode.

    Its outputs do not show it if they do not depend on them yet, as behind a weight of 0.
    """
    with torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        _run(module, inputs, (), predicting=False)
        return not torch.equal(torch.get_rng_state(), before)


def _outputs(
    module: nn.Module, inputs: Inputs, predicted: Collection[type] | None, *, seed: int = 0
) -> list[torch.Tensor]:
    """Run a copy of the module in evaluation mode, or predict as these classes train."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _run(module, inputs, predicted or (), predicting=predicted is not None)


def _run(
    module: nn.Module, inputs: Inputs, trained: Collection[type], predicting: bool
) -> list[torch.Tensor]:
    """Run a copy of the module, in which these classes alone are in training mode."""
    copied = copied_module(module, shared=module.parameters())
    for part in copied.modules():
        training = getattr(part, "training", False)  # a frozen part of TorchScript has no mode
        part.training = training and type(part) in trained
    args, kwargs = copy.deepcopy(inputs)
    with torch.no_grad(), _Predicting(copied) if predicting else nullcontext():
        results = copied(*args, **kwargs)
    return [x for x in pytree.tree_leaves(results) if isinstance(x, torch.Tensor)]


def _same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    """Whether the results are equal apart from rounding; a mode may return more than the other."""
    return all(map(_close, found, expected))


def _close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    if found.shape != expected.shape:
        return False
    one, other = found.double(), expected.double()
    largest = float(other.nan_to_num().abs().max()) if other.numel() else 0.0
    return torch.allclose(one, other, CLOSE, CLOSE * largest, equal_nan=True)


class _Predicting(TorchFunctionMode):
    """Computes as predictions that are derived from training."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._buffers = {buffer.untyped_storage().data_ptr() for buffer in module.buffers()}

    def __torch_function__(
        self, func: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function in evaluation mode; leave out dropout, and writes to buffers."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if DROPOUT in name:
            return args[0] if args else kwargs["input"]
        if self._writes(name, args):
            return args[0]
        if name == "scaled_dot_product_attention":
            shared = len(args) > DROPOUT_SHARE
            args = (*args[:DROPOUT_SHARE], 0.0, *args[DROPOUT_SHARE + 1 :]) if shared else args
            kwargs = kwargs if shared else {**kwargs, "dropout_p": 0.0}
        return _evaluated(func, args, kwargs) if name in FLAGS else func(*args, **kwargs)

    def _writes(self, name: str, args: tuple[Any, ...]) -> bool:
        """Whether a function changes a buffer in place."""
        if name != "__setitem__" and (not name.endswith("_") or name.endswith("__")):
            return False
        written = args[0] if args else None
        memory = written.untyped_storage() if isinstance(written, torch.Tensor) else None
        return memory is not None and memory.data_ptr() in self._buffers


def _evaluated(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call a function of FLAGS in evaluation mode, but a norm without running statistics."""
    if isinstance(func, types.BuiltinFunctionType):  # torch.batch_norm, torch.instance_norm
        before, flag, after = args[:5], args[5], args[6:]
        return func(*before, flag and before[3] is None, *after)
    name = func.__name__
    mean = kwargs.get("running_mean", args[1] if len(args) > 1 else None)
    if name.endswith("_norm") and mean is None:
        return func(*args, **kwargs)
    return func(*args, **{**kwargs, FLAGS[name]: False})
