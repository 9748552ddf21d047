"""Derivatives taken by a module or its loss: `torch.autograd.grad`, `torch.func`.

While tracing, an internal operator represents the gradients. The importer differentiates the graph
built so far (`compiler/autodiff.py:derivatives`); the training step then differentiates the result
again. A forward-mode derivative is the derivative of a backward pass by its cotangent.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import _vmap_internals
from torch._functorch import eager_transforms
from torch.autograd import functional
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from pockengine.errors import ImportModelError
from pockengine.frontends.faults import theirs
from pockengine.frontends.torch.replaced import replaced

LIBRARY = torch.library.Library("pockengine", "FRAGMENT")
LIBRARY.define("variable(Tensor x) -> Tensor")
LIBRARY.define("gradients(Tensor[] y, Tensor[] dy, Tensor[] x) -> Tensor[]")
KEY = "CompositeExplicitAutograd"
LIBRARY.impl("variable", torch.clone, KEY)
LIBRARY.impl("gradients", lambda y, dy, x: [torch.empty_like(one) for one in x], KEY)
OPS = torch.ops.pockengine

Argnums = int | tuple[int, ...] | None
Function = Callable[..., Any]


@contextmanager
def derivatives(refuse: Callable[..., Any]) -> Iterator[None]:
    """Trace derivatives; `refuse` is called for gradients that parameters would keep."""

    def run_backward(*args: Any, accumulate_grad: bool, **kwargs: Any) -> Any:
        return refuse() if accumulate_grad else _gradients_of(*args, **kwargs)

    places: tuple[tuple[ModuleType, str, Function], ...] = (
        (torch.autograd, "_engine_run_backward", run_backward),
        (eager_transforms, "_vjp_with_argnums", _vjp),
        (eager_transforms, "_jvp_with_argnums", _jvp),
        (eager_transforms, "grad_and_value_impl", _grad_and_value),
        (_vmap_internals, "_vmap", _vmap),
        (functional, "_vmap", _vmap),
    )
    with ExitStack() as stack:
        for module, name, instead in places:
            stack.enter_context(replaced(module, name, instead))
        yield


def variables_of(graph: Graph) -> set[Node]:
    """Return the names that a derivative is taken of."""
    taken = (node.args[2] for node in graph.nodes if node.target is OPS.gradients.default)
    return {name for names in taken for name in names}


def _gradients_of(
    outputs: Sequence[Any],
    cotangents: Sequence[Any],
    _retain: bool,
    create_graph: bool,
    inputs: Sequence[Any],
    *_: Any,
    **__: Any,
) -> tuple[torch.Tensor, ...]:
    """Return the result of `torch.autograd.grad`; 0 for an input that the outputs do not depend
    on."""
    if not all(isinstance(x, torch.Tensor) for x in (*outputs, *inputs)):
        raise ImportModelError("torch.autograd.grad is given edges of a graph; give it tensors")
    gradients = [
        torch.ones_like(y) if dy is None else dy for y, dy in zip(outputs, cotangents, strict=True)
    ]
    found = _gradients(outputs, gradients, inputs)
    return tuple(found if create_graph else [dx.detach() for dx in found])


def _gradients(
    y: Sequence[torch.Tensor], dy: Sequence[torch.Tensor], x: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Return gradients that train, as non-leaves: later code may write to them."""
    found = OPS.gradients(list(y), list(dy), list(x))
    return [dx.requires_grad_().clone() for dx in found]


def _variable(x: torch.Tensor) -> torch.Tensor:
    value: torch.Tensor = theirs(OPS.variable, x)
    return value.requires_grad_().clone()


def _as_variables(args: tuple[Any, ...], argnums: Argnums) -> tuple[Any, ...]:
    """Replace these arguments, by default all."""
    chosen = range(len(args)) if argnums is None else _listed(argnums)
    places = {place % len(args) for place in chosen}
    return tuple(
        pytree.tree_map(_variable, x) if place in places else x for place, x in enumerate(args)
    )


def _listed(argnums: int | tuple[int, ...]) -> tuple[int, ...]:
    return (argnums,) if isinstance(argnums, int) else argnums


def _chosen(args: tuple[Any, ...], argnums: Argnums) -> Any:
    if argnums is None:
        return args
    return args[argnums] if isinstance(argnums, int) else tuple(args[n] for n in argnums)


def _vjp(function: Function, *primals: Any, argnums: Argnums = None, has_aux: bool = False) -> Any:
    """Replace `torch.func.vjp`, also as `jacrev` calls it."""
    primals = _as_variables(primals, argnums)
    x, inputs = pytree.tree_flatten(_chosen(primals, argnums))
    outputs, *aux = theirs(function, *primals) if has_aux else (theirs(function, *primals),)
    y = pytree.tree_flatten(outputs)[0]

    def pull(cotangents: Any, **_: Any) -> Any:
        return pytree.tree_unflatten(_gradients(y, pytree.tree_flatten(cotangents)[0], x), inputs)

    return (outputs, pull, *aux)


def _jvp(
    function: Function,
    primals: tuple[Any, ...],
    tangents: Any,
    argnums: Argnums,
    *,
    strict: bool = False,
    has_aux: bool,
) -> Any:
    """Replace `torch.func.jvp`: the backward pass is linear in the cotangents of y."""
    primals = _as_variables(primals, argnums)
    x = pytree.tree_flatten(_chosen(primals, argnums))[0]
    outputs, *aux = theirs(function, *primals) if has_aux else (theirs(function, *primals),)
    y, structure = pytree.tree_flatten(outputs)
    dy = [_variable(torch.zeros_like(one)) for one in y]
    slopes = _gradients(_gradients(y, dy, x), pytree.tree_flatten(tangents)[0], dy)
    return (outputs, pytree.tree_unflatten(slopes, structure), *aux)


def _grad_and_value(
    function: Function,
    argnums: int | tuple[int, ...],
    has_aux: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Any, Any]:
    """Replace `torch.func.grad` and `torch.func.grad_and_value`."""
    args = _as_variables(args, argnums)
    x, structure = pytree.tree_flatten(_chosen(args, argnums))
    result = theirs(function, *args, **kwargs)
    y = result[0] if has_aux else result
    if not isinstance(y, torch.Tensor) or y.dim():
        found = tuple(y.shape) if isinstance(y, torch.Tensor) else type(y).__name__
        raise ImportModelError(
            f"torch.func.grad is given a function that returns {found}; it must return one number"
        )
    return pytree.tree_unflatten(_gradients([y], [torch.ones_like(y)], x), structure), result


def _vmap(function: Function, in_dims: Any = 0, out_dims: Any = 0, **_: Any) -> Function:
    return torch.vmap(function, in_dims, out_dims)
