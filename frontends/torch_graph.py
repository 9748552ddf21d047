"""Walk an exported PyTorch program and build our graph from it, operator by operator.

What cannot be imported is collected while walking, so that one error names all of it: an operator
that reads the result of a failed one is checked for a rule and otherwise passed over.
"""

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from pockengine.compiler.ir import F32, Builder, Graph
from pockengine.errors import GraphError, ImportModelError
from pockengine.frontends.aten import Context, elementwise, rule_for
from pockengine.frontends.aten.registry import Missing
from pockengine.frontends.emit_nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain
from pockengine.frontends.losses import add_loss
from pockengine.frontends.problems import EMPTY, NO_RULE, Problems
from pockengine.frontends.torch_decompose import decompose, missing_rule
from pockengine.frontends.torch_loss import Loss
from pockengine.frontends.torch_params import DTYPES, batch_counters, declare
from pockengine.frontends.torch_storage import Storages

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

Known = Any
"""What a name stands for: a `Tensor`, a constant as torch.Tensor, a sequence of either, a module
with a subgraph, or None for what could not be imported."""

PRIM_NAMES = {"a": "x", "b": "other", "inp": "x", "pred": "condition"}
"""Arguments of prims whose names differ from ATen's for the same thing."""

LOSS = "loss"

WRITES = ("index_", "put", "scatter")
"""How operators are called that write at indices; without any they change nothing."""

STALE = (
    "it reads a tensor that an in-place operator has changed through another view; use the "
    "operator's out-of-place form"
)
STATE_WRITE = (
    "it changes a parameter or buffer in place; only batch norm's running statistics are kept"
)


def import_program(
    program: "ExportedProgram", module: "nn.Module", loss: "str | Loss | None"
) -> Graph:
    """Build the graph; ImportModelError lists whatever has no equivalent.

    With a loss that is a function, the program is that of `with_loss`.
    """
    name = type(module).__name__
    importer = _Importer(Graph(name))
    importer.declare(program, module)
    importer.walk(program.graph_module, program.graph.nodes)
    outputs = importer.outputs(program, own_loss=callable(loss))
    importer.problems.check(name)
    if not outputs:
        raise ImportModelError(f"{name} returns no tensor; return what is to be computed")
    if callable(loss) and not _is_loss(outputs[LOSS]):
        raise ImportModelError(
            f"the loss must be one float32 number, not {outputs[LOSS].dtype.value}"
            f"{list(outputs[LOSS].shape)}; reduce it, for instance by its mean"
        )
    if isinstance(loss, str):
        add_loss(importer.g, next(iter(outputs.values())), loss)
    for key, tensor in outputs.items():
        importer.g.output(key, framework_order(importer.g, tensor))
    return importer.g.graph


class _Importer:
    """One import: what each traced name stands for by now."""

    def __init__(self, graph: Graph) -> None:
        self.g = Builder(graph)
        self.problems = Problems()
        self.known: dict[Node, Known] = {}
        self.storages = Storages()
        self.skipped: set[Node] = set()
        self.constants: dict[Node, Tensor] = {}
        """Constants that something in the graph reads."""
        self.state: set[Node] = set()
        """Placeholders of parameters and buffers."""

    def declare(self, program: "ExportedProgram", module: "nn.Module") -> None:
        """Take in the placeholders."""
        self.known.update(declare(self.g, program, module, self.problems))
        self.skipped.update(batch_counters(program))
        signature = program.graph_signature
        held = {*signature.inputs_to_parameters, *signature.inputs_to_buffers}
        for node in program.graph.nodes:
            if node.op == "placeholder":
                self.storages.add(node)
                if node.name in held:
                    self.state.add(node)

    def walk(self, owner: torch.nn.Module, nodes: Iterable[Node]) -> None:
        """Build every operator in order; `owner` holds the subgraphs that they refer to."""
        for node in nodes:
            if node.op == "get_attr":
                self.known[node] = operator.attrgetter(str(node.target))(owner)
            elif node.op == "call_function" and node not in self.skipped:
                self._call(node)

    def outputs(self, program: "ExportedProgram", *, own_loss: bool) -> dict[str, Tensor]:
        """Name what the module returns: "output", "output.0", or by the keys of a mapping.

        With `own_loss` it returns (outputs, loss).
        """
        (node,) = (node for node in program.graph.nodes if node.op == "output")
        flat = list(node.args[0])
        names = _output_names(program.call_spec.out_spec, len(flat), own_loss)
        found: dict[str, Tensor] = {}
        for name, result in zip(names, flat, strict=True):
            tensor = self._output(name, result) if isinstance(result, Node) else None
            if tensor is not None:
                found[name] = tensor
        if list(found) == ["output"] and _is_loss(found["output"]):
            return {"loss": found["output"]}
        return found

    def _output(self, name: str, node: Node) -> Tensor | None:
        try:
            return self._value(node)
        except Unsupported as error:
            self.problems.add(f"output {name}", str(error), "")
            return None

    def _call(self, node: Node) -> None:
        """Build one operator, or note why not."""
        place = _module_path(node)
        result: Known = None
        try:
            with self.g.scope(place):
                result = self._evaluate(node)
        except (Unsupported, GraphError) as error:
            self.problems.add(str(node.target), str(error), place)
        self.known[node] = result
        self.storages.add(node)
        for written in _written(node):
            for name in self.storages.write(written):
                self.known[name] = result
                self.constants.pop(name, None)

    def _evaluate(self, node: Node) -> Known:
        if node.target is operator.getitem:
            parts = self.known[node.args[0]]
            return parts if parts is None or isinstance(parts, Missing) else parts[node.args[1]]
        if str(node.target) == "wrap_with_set_grad_enabled":
            return self._inline(node)
        if not isinstance(node.target, torch._ops.OpOverload):
            return self._tuple(node)
        overload = str(node.target).removeprefix("aten.")
        if overload.startswith("_assert"):
            return None
        if any(self._shares_state(written) for written in _written(node)):
            raise Unsupported(STATE_WRITE)
        if all(isinstance(self.known[source], torch.Tensor) for source in node.all_input_nodes):
            return self._constant(node)
        return self._apply(node, overload)

    def _apply(self, node: Node, overload: str) -> Known:
        """Build one operator by its rule, or else by PyTorch's definition of it."""
        shape, dtype = _result_type(node)
        if dtype is not None and 0 in shape:
            return _empty(node)
        rule = rule_for(overload)
        nothing = self._reads_nothing(node) and not overload.startswith("cat.")
        if nothing and overload.startswith(WRITES):
            return self.known[node.args[0]]
        if rule is None or nothing:
            return self._expand(node)
        missing = next((self.known[x] for x in node.all_input_nodes if self._is_missing(x)), None)
        if missing is not None:
            return missing
        arguments = {name: self._value(arg) for name, arg in self._bound(node).items()}
        if any(self.known[source] is None for source in node.all_input_nodes):
            return None
        return _checked(node, rule(Context(self.g, shape, dtype), **arguments))

    def _bound(self, node: Node) -> dict[str, Any]:
        """Return the arguments by name, without the parts of lists that have no elements."""
        bound = _bound(node)
        for name, value in bound.items():
            if isinstance(value, (list, tuple)):
                bound[name] = [part for part in value if not self._is_empty(part)]
        return bound

    def _reads_nothing(self, node: Node) -> bool:
        return any(self._is_empty(source) for source in node.all_input_nodes)

    def _is_empty(self, argument: Any) -> bool:
        known = self.known.get(argument) if isinstance(argument, Node) else None
        return isinstance(known, torch.Tensor) and known.numel() == 0

    def _is_missing(self, name: Node) -> bool:
        return isinstance(self.known[name], Missing)

    def _tuple(self, node: Node) -> Known:
        """Gather results in a named tuple, of which only definitions of operators make use."""
        if not (isinstance(node.target, type) and issubclass(node.target, tuple)):
            raise Unsupported(NO_RULE)
        parts = node.args if isinstance(node.args[0], Node) else node.args[0]
        return [self._result(part) for part in parts]

    def _expand(self, node: Node) -> Known:
        """Build an operator without a rule by PyTorch's definition of it."""
        body = decompose(node)
        if body is None:
            raise Unsupported(NO_RULE)
        missing = missing_rule(body)
        if missing is not None:
            raise Unsupported(f"{NO_RULE} (PyTorch defines it by {missing}, which has none either)")
        placeholders = [inner for inner in body.graph.nodes if inner.op == "placeholder"]
        for inner, source in zip(placeholders, node.all_input_nodes, strict=True):
            if self.known[source] is None:
                return None
            self.known[inner] = self.known[source]
        self.walk(body, body.graph.nodes)
        (output,) = (inner for inner in body.graph.nodes if inner.op == "output")
        results = output.args[0]
        if isinstance(results, (list, tuple)):
            return [self._result(result) for result in results]
        return self._result(results)

    def _result(self, argument: Any) -> Known:
        """Return what a result stands for; unread, it may be missing or have no elements."""
        if isinstance(argument, Node) and (self._is_missing(argument) or self._is_empty(argument)):
            return self.known[argument]
        return self._value(argument)

    def _value(self, argument: Any) -> Known:
        """Replace traced names by what they stand for, inside of lists too."""
        if isinstance(argument, Node):
            if self.storages.is_stale(argument):
                raise Unsupported(STALE)
            known = self.known[argument]
            if isinstance(known, Missing):
                raise Unsupported(known.reason)
            if isinstance(known, torch.Tensor):
                return self._constant_tensor(argument, known)
            return known
        if isinstance(argument, (list, tuple)):
            return [self._value(item) for item in argument]
        return argument

    def _shares_state(self, name: Node) -> bool:
        return any(other in self.state for other in self.storages.sharers(name))

    def _constant(self, node: Node) -> Known:
        """Run an operator that reads constants only (arange, zeros, ...) now."""
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            raise Unsupported("random numbers inside of the model; pass them as an input")
        args, kwargs = torch.fx.map_arg(
            (node.args, node.kwargs), lambda source: self.known[source].clone()
        )
        with torch.no_grad():
            return node.target(*args, **kwargs)

    def _constant_tensor(self, node: Node, data: torch.Tensor) -> Tensor:
        """Put a constant that an operator reads into the graph, once."""
        if data.numel() == 0:
            raise Unsupported(EMPTY)
        if data.dtype not in DTYPES:
            raise Unsupported(f"a constant of {data.dtype}; use float32, int32, int64 or bool")
        if node not in self.constants:
            scalar = data.dim() == 0
            self.constants[node] = plain(
                self.g.scalar(data.item(), DTYPES[data.dtype])
                if scalar
                else self.g.constant(data.cpu().numpy())
            )
        return self.constants[node]

    def _inline(self, node: Node) -> Known:
        """Build the body of a `with torch.no_grad():` block where it stands."""
        enabled, body, *arguments = node.args
        graph = self.known[body].graph
        placeholders = [inner for inner in graph.nodes if inner.op == "placeholder"]
        for inner, argument in zip(placeholders, arguments, strict=True):
            self.known[inner] = self._value(argument)
        self.walk(self.known[body], graph.nodes)
        (output,) = (inner for inner in graph.nodes if inner.op == "output")
        results = self._value(output.args[0])
        if not enabled:
            context = Context(self.g, (), None)
            results = [
                elementwise.detach(context, x) if isinstance(x, Tensor) else x for x in results
            ]
        return results


def _bound(node: Node) -> dict[str, Any]:
    """Return the operator's arguments by their names in its schema, defaults filled in."""
    bound = {}
    for index, argument in enumerate(node.target._schema.arguments):
        if index < len(node.args):
            value = node.args[index]
        else:
            value = node.kwargs.get(argument.name, argument.default_value)
        bound["x" if argument.name in ("self", "input") else argument.name] = value
    if str(node.target).startswith("prims."):  # which name tensors alike, but not as ATen does
        return {PRIM_NAMES.get(name, name): value for name, value in bound.items()}
    return bound


def _written(node: Node) -> list[Node]:
    """Return the names that an in-place operator writes."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    written = []
    for index, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[index] if index < len(node.args) else node.kwargs[argument.name]
            if isinstance(value, Node):
                written.append(value)
    return written


def _result_type(node: Node) -> tuple[tuple[int, ...], Any]:
    """Return shape and type of the first result, as PyTorch has them."""
    value = node.meta.get("val")
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    if not isinstance(first, torch.Tensor):
        return (), None
    if not all(isinstance(size, int) for size in first.shape):
        raise Unsupported("a result whose size depends on the data; use where")
    return tuple(first.shape), DTYPES.get(first.dtype)


def _empty(node: Node) -> Known:
    """Return constants for results without elements, which hold no number to compute."""
    values = node.meta["val"]
    if isinstance(values, torch.Tensor):
        return torch.empty(values.shape, dtype=values.dtype)
    if any(value.numel() for value in values):
        raise Unsupported(EMPTY)
    return [torch.empty(value.shape, dtype=value.dtype) for value in values]


def _checked(node: Node, result: Known) -> Known:
    """Compare what a rule built with PyTorch's own shapes and types."""
    values = node.meta.get("val")
    pairs = [(result, values)] if isinstance(result, Tensor) else zip(result, values, strict=False)
    for built, value in pairs:
        if isinstance(built, Tensor) and isinstance(value, torch.Tensor):
            dtype = DTYPES.get(value.dtype)
            if built.shape != tuple(value.shape) or built.dtype is not dtype:
                raise Unsupported(
                    f"its result is {value.dtype}{list(value.shape)} in PyTorch, "
                    f"{built.dtype.value}{list(built.shape)} here"
                )
    return result


def _is_loss(tensor: Tensor) -> bool:
    return tensor.rank == 0 and tensor.dtype is F32


def _module_path(node: Node) -> str:
    """Return the path of the innermost module that this operator was traced in."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return str(stack[-1][0]) if stack else ""


def _output_names(spec: Any, count: int, own_loss: bool) -> list[str]:
    """Name the flat results by their places in what forward returns."""
    structure = pytree.tree_unflatten(list(range(count)), spec)
    if own_loss:
        outputs, number = structure
        names = _names(outputs)
        if LOSS in names or not isinstance(number, int):
            raise ImportModelError(
                "with a loss of your own the model must return no output named 'loss', and the "
                "loss one scalar"
            )
        return [*names, LOSS]
    return _names(structure)


def _names(structure: Any) -> list[str]:
    names = []
    for path, _ in pytree.tree_flatten_with_path(structure)[0]:
        parts = [
            str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path
        ]
        if not parts or parts[0].isdigit():
            parts.insert(0, "output")
        names.append(".".join(parts))
    return names
