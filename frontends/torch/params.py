"""Declare the parameters, buffers, constants and inputs of an exported PyTorch program.

Parameters keep the names of the module, are stored in the order of dimensions that their only
kind of user prefers, and remember the permutation. A parameter of several names has the first one.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Node
from torch.nn.modules.batchnorm import _BatchNorm

from pockengine.compiler.controls import CONTROLS
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.ir.contents import ShapeOnly
from pockengine.compiler.ir.graph import Param, ParamKind
from pockengine.compiler.ir.scalars import COMPUTED
from pockengine.compiler.passes.forward.infer import batch_statistics
from pockengine.frontends.dtypes import USE
from pockengine.frontends.integer_weights import as_integers
from pockengine.frontends.layout import Layout, Tensor, identity, plain
from pockengine.frontends.problems import Problems
from pockengine.frontends.torch.aten.registry import WEIGHT_LAYOUTS

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

DTYPES = {getattr(torch, str(dtype.numpy)): dtype for dtype in COMPUTED}
"""PyTorch's types by NumPy's names, which they share."""

WITHIN = {**DTYPES, **dict.fromkeys((torch.float64, torch.bfloat16, torch.float16), F32)}
"""Types in a model's computation; floats of other sizes are computed in float32."""

COUNTER = "num_batches_tracked"
"""The end of the names of batch norm's counts, which no program has."""

Declared = dict[Node, Tensor | torch.Tensor | None]
"""A torch.Tensor is a constant: operators of constants alone run while importing."""


def declare(
    g: Builder, program: "ExportedProgram", module: "nn.Module", problems: Problems
) -> Declared:
    """Declare the program's inputs; the result has a tensor for each placeholder in use, None if it
    cannot be imported. Buffers that the module's state_dict leaves out are constants.
    """
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    declared: Declared = {}
    for name, aliases in _parameters(program, module).items():
        users = [nodes[alias.arg.name] for alias in aliases]
        if any(node.users for node in users):
            tensor = _parameter(g, name, module.get_parameter(name), nodes=users, problems=problems)
            declared.update(dict.fromkeys(users, tensor))
    for spec in program.graph_signature.input_specs:
        node = nodes[spec.arg.name] if isinstance(spec.arg, TensorArgument) else None
        if node is not None and spec.kind is not InputKind.PARAMETER:
            _declare_other(g, program, spec, node=node, declared=declared, problems=problems)
    return declared


def _parameters(program: "ExportedProgram", module: "nn.Module") -> dict[str, list[InputSpec]]:
    """Group the parameters' placeholders by the first name of each parameter."""
    first = first_names(module)
    groups: dict[str, list[InputSpec]] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.PARAMETER:
            name = first[spec.target]
            groups.setdefault(name, []).append(spec)
    return groups


def first_names(module: "nn.Module") -> dict[str, str]:
    """Return, by each name of a parameter or buffer, the first name of the same tensor."""
    first: dict[int, str] = {}
    names = {}
    for named in (module.named_parameters, module.named_buffers):
        for name, tensor in named(remove_duplicate=False):
            names[name] = first.setdefault(id(tensor), name)
    return names


def whole_state(
    module: "nn.Module", graph: Graph, tensors: Mapping[str, torch.Tensor], steps: int
) -> dict[str, torch.Tensor]:
    """Return the module's state_dict with these tensors in it, under all of their names."""
    state: dict[str, torch.Tensor] = module.state_dict()
    first = first_names(module)
    for name, stored in list(state.items()):
        if not isinstance(stored, torch.Tensor):
            continue  # a module's extra state
        tensor = tensors.get(first.get(name, name))
        param = graph.params.get(first.get(name, name))
        state[name] = stored.clone() if tensor is None else _as_integers(tensor, stored, param)
        owner = module.get_submodule(name.rpartition(".")[0]) if name.endswith(COUNTER) else None
        if tensor is None and isinstance(owner, _BatchNorm):  # an instance norm counts nothing
            mean = name.removesuffix(COUNTER) + "running_mean"
            state[name] += steps * _batches(graph, first.get(mean, mean))
    return state


def _as_integers(tensor: torch.Tensor, stored: torch.Tensor, param: Param | None) -> torch.Tensor:
    """Return a tuned tensor in the module's form: as integers if the module stores integers."""
    if stored.dtype.is_floating_point or stored.dtype.is_complex:
        return tensor.to(stored.device, stored.dtype)
    dtype = stored.detach().cpu().numpy().dtype
    return torch.from_numpy(as_integers(tensor.numpy(), dtype, param)).to(stored.device)


def _batches(graph: Graph, statistic: str) -> int:
    """Return the number of batches with which a step updates a running statistic."""
    return sum(
        len(batch_statistics(node.operands[1]))
        for node in graph.nodes
        if node.op == "ema_update" and node.operands[0].name == statistic
    )


def _parameter(
    g: Builder, name: str, parameter: Any, nodes: list[Node], problems: Problems
) -> Tensor | torch.Tensor | None:
    """Declare one trainable or frozen parameter in its users' favorite layout."""
    if parameter.dtype not in DTYPES:
        fix = "convert the module by .float()"
        if parameter.is_complex():
            fix = "hold both parts as parameters of float32, and join them by torch.complex"
        problems.add(f"{parameter.dtype}", fix, name)
        return None
    if parameter.numel() == 0:
        return parameter.detach()  # nothing to train
    layout = _favorite(nodes, parameter.dim())
    value = g.param(
        name,
        _contents(parameter, layout),
        permutation=None if layout == identity(len(layout)) else layout,
        trainable=bool(parameter.requires_grad),
        kind=ParamKind.WEIGHT,
    )
    return Tensor(value, layout)


def _favorite(nodes: list[Node], rank: int) -> Layout:
    """Return the layout that every user of these placeholders prefers, else the framework's."""
    wishes = {_wish(user, node) for node in nodes for user in node.users}
    wish = wishes.pop() if len(wishes) == 1 else None
    return wish if wish is not None and len(wish) == rank else identity(rank)


def _wish(user: Node, parameter: Node) -> Layout | None:
    wish = WEIGHT_LAYOUTS.get(str(user.target).removeprefix("aten."))
    is_weight = len(user.args) > 1 and user.args[1] is parameter
    return wish if is_weight and user.args[0] is not parameter else None


def _declare_other(
    g: Builder,
    program: "ExportedProgram",
    spec: InputSpec,
    node: Node,
    declared: Declared,
    problems: Problems,
) -> None:
    """Declare a buffer as a state, a constant tensor, or an input of forward."""
    if spec.kind is InputKind.USER_INPUT:
        if node.name in CONTROLS or node.name in g.graph.params:
            owner = "a parameter" if node.name in g.graph.params else "the training step"
            problems.add(f"input {node.name}", f"{owner} has this name; rename forward's", "")
            declared[node] = None
            return
        example = node.meta["val"]
        type_ = TensorType(DTYPES[example.dtype], tuple(example.shape))
        declared[node] = plain(g.input(node.name, type_))
        return
    if not node.users:
        return
    tensor = {**program.state_dict, **program.constants}[spec.target]
    other_float = tensor.dtype not in DTYPES and tensor.is_floating_point()
    if other_float or tensor.is_complex():  # a factor, a table of rotations; nothing trains it
        declared[node] = tensor.detach()
        return
    if tensor.dtype not in DTYPES:
        problems.add(f"{tensor.dtype}", USE, spec.target)
        declared[node] = None
        return
    if spec.kind is InputKind.BUFFER and spec.persistent and tensor.numel() > 0:
        data = _array(tensor, identity(tensor.dim()))
        declared[node] = plain(g.param(spec.target, data, trainable=False))
    else:
        declared[node] = tensor.detach()


def _contents(parameter: Any, layout: Layout) -> np.ndarray | ShapeOnly:
    """Return a parameter's numbers, or only its shape if it is on `meta`."""
    if not parameter.is_meta:
        return _array(parameter, layout)
    shape = tuple(parameter.shape[axis] for axis in layout)
    return ShapeOnly(TensorType(DTYPES[parameter.dtype], shape))


def _array(tensor: Any, layout: Layout) -> np.ndarray:
    """Copy a tensor's data in this order, so that later changes of the module do not reach us."""
    return np.array(tensor.detach().cpu().numpy().transpose(layout), order="C")
