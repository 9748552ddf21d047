"""Transforms of functions (`torch.func`) that a module applies while it is traced.

`vmap` calls its function once per row. Derivatives are traced (`derivatives.py`), except
`Tensor.backward` and dual numbers, which are refused by name.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, NoReturn

import torch
from torch._functorch import apis
from torch._functorch.vmap import _process_batched_inputs
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

from pockengine.errors import ImportModelError
from pockengine.frontends.faults import OURS, theirs
from pockengine.frontends.torch.derivatives import derivatives
from pockengine.frontends.torch.replaced import replaced

MOST_ROWS = 256
"""Maximum number of calls by vmap, nested ones included."""

PUBLIC = {"torch._functorch.apis": "torch.func", "torch._functorch.eager_transforms": "torch.func"}
PUBLIC |= {"torch._tensor": "torch"}
"""Public modules, by the modules that define the functions."""


@contextmanager
def transforms() -> Iterator[None]:
    """Unroll vmap, and trace derivatives, while a module is traced."""
    with ExitStack() as stack:
        stack.enter_context(replaced(apis, "vmap_impl", _Unrolled()))
        stack.enter_context(derivatives(_refuse_backward))
        stack.enter_context(replaced(forward_ad, "enter_dual_level", _refuse_dual))
        yield


class _Unrolled:
    """Stands in for vmap: a call for each row, the results stacked."""

    def __init__(self) -> None:
        self._calls = 1
        """How often the function that is being called is called in all."""

    def __call__(
        self,
        function: Callable[..., Any],
        in_dims: Any,
        out_dims: Any,
        randomness: str,
        chunk_size: int | None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        size, dims, flat, spec = _process_batched_inputs(in_dims, args, function)
        before = self._calls
        if randomness == "same" or before * size > MOST_ROWS:
            _refuse_vmap(randomness, before * size)
        self._calls = before * size
        try:
            results = [
                theirs(function, *pytree.tree_unflatten(_row(flat, dims, row), spec), **kwargs)
                for row in range(size)
            ]
        finally:
            self._calls = before
        return _stacked(results, out_dims)


def _row(flat: list[Any], dims: list[int | None], row: int) -> list[Any]:
    pairs = zip(flat, dims, strict=True)
    return [x if dim is None else x.select(dim, row) for x, dim in pairs]


def _stacked(results: list[Any], out_dims: Any) -> Any:
    """Stack the results of the calls, each tensor along its own dimension."""
    flat = [pytree.tree_flatten(result)[0] for result in results]
    spec = pytree.tree_flatten(results[0])[1]
    if isinstance(results[0], torch.Tensor) and isinstance(out_dims, tuple):
        (out_dims,) = out_dims
    dims = pytree._broadcast_to_and_flatten(out_dims, spec)
    if dims is None:
        raise ValueError(f"vmap: out_dims {out_dims} does not fit what the function returns")
    columns = zip(zip(*flat, strict=True), dims, strict=True)
    stacked = [parts[0] if dim is None else torch.stack(parts, dim) for parts, dim in columns]
    return pytree.tree_unflatten(stacked, spec)


def _refuse_vmap(randomness: str, calls: int) -> NoReturn:
    name, place = _caller(sys._getframe(2))
    if randomness == "same":
        fact = "draws the same random numbers for all rows; draw them before it"
    else:
        fact = (
            f"would call its function {calls} times, and at most {MOST_ROWS} are traced; write it "
            "for the whole batch at once"
        )
    raise ImportModelError(f"{name} (at {place}) {fact}")


def _refuse_backward() -> NoReturn:
    _refuse_derivative("use torch.autograd.grad(..., create_graph=True)")


def _refuse_dual(*_args: Any, **_kwargs: Any) -> NoReturn:
    _refuse_derivative("use torch.func.jvp")


def _refuse_derivative(instead: str) -> NoReturn:
    name, place = _caller(sys._getframe(2))
    raise ImportModelError(
        f"{name} (at {place}) takes a derivative within the model or its loss by what PyTorch "
        f"keeps beside the tensors, which a compiled step has not; {instead}"
    )


def _caller(frame: FrameType | None) -> tuple[str, str]:
    """Return PyTorch's function that the user called, and the line that called it."""
    name = ""
    while frame is not None and frame.f_code.co_filename.startswith((torch.__path__[0], *OURS)):
        if not frame.f_code.co_filename.startswith(OURS):
            module = str(frame.f_globals["__name__"])
            name = f"{PUBLIC.get(module, module)}.{frame.f_code.co_qualname.partition('.<')[0]}"
        frame = frame.f_back
    assert frame is not None
    return name.removesuffix(".__enter__"), f"{frame.f_code.co_filename}:{frame.f_lineno}"
