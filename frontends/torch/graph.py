"""Walk an exported PyTorch program and build our graph from it, operator by operator."""

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.graph import LOSS
from pockengine.errors import ImportModelError
from pockengine.frontends import emit
from pockengine.frontends.emit.complex import Complex
from pockengine.frontends.emit.gradient import variable
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.idioms import recognize
from pockengine.frontends.idioms.drop_path import DROPPED_PATHS
from pockengine.frontends.layout import Tensor
from pockengine.frontends.losses import add_loss, is_loss, with_loss_named
from pockengine.frontends.problems import NO_RULE
from pockengine.frontends.torch.aten import AtenContext, complex_rule_for, rule_for
from pockengine.frontends.torch.aten.numbers import ON_NUMBERS
from pockengine.frontends.torch.aten.registry import Missing
from pockengine.frontends.torch.blocks import AUTOCAST, UNRECORDED
from pockengine.frontends.torch.decompose import decompose, missing_rule
from pockengine.frontends.torch.derivatives import variables_of
from pockengine.frontends.torch.halves import fitted, rounded_arguments
from pockengine.frontends.torch.loss import Loss
from pockengine.frontends.torch.memory import Known, Memory
from pockengine.frontends.torch.nodes import (
    arguments_of,
    check_order,
    is_empty,
    module_path,
    placeholders,
    result_type,
    results_of,
    varies,
    without_elements,
    written_by,
)
from pockengine.frontends.torch.outputs import output_names
from pockengine.frontends.torch.params import WITHIN, declare
from pockengine.frontends.torch.states import (
    RENORM,
    STATE_WRITE,
    check_assigned,
    check_evaluation,
    is_scratch,
    keep,
    renewed,
)
from pockengine.frontends.walker import GraphWalker

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

UNFILLED = ("aten.empty", "aten.new_empty")
"""Prefixes of operators that return uninitialized memory."""

WRITES = ("index_", "put", "scatter")
"""Prefixes of operators that write at indices; without indices they change nothing."""

UNSEEN = "aten.logical_"
"""Prefix of writes that autograd does not record: gradients flow as if they were absent."""

COMPLEX_WRITE = "it changes a complex tensor in place; use the operator's out-of-place form"

ROUNDED = (
    "autocast is enabled in an exported program; export the module without it, and pass bf16=True "
    "to pockengine.compile to round the operands of large products"
)


def import_program(
    program: "ExportedProgram", module: "nn.Module", loss: "str | Loss | None"
) -> Graph:
    """Build the graph; ImportModelError lists everything that has no equivalent.

    With a loss that is a function, the program is that of `with_loss`.
    """
    name = type(module).__name__
    importer = _Importer(name)
    importer.declare(program, module)
    importer.walk(program.graph_module, program.graph.nodes)
    outputs = importer.outputs(program, own_loss=callable(loss))
    if loss is None:
        outputs = with_loss_named(outputs, is_loss)
    importer.keep_buffers(program, module)
    importer.problems.check(name)
    if not outputs:
        raise ImportModelError(f"{name} returns no tensor; return what is to be computed")
    if callable(loss) and not is_loss(outputs[LOSS]):
        raise ImportModelError(
            f"the loss must be one float32 number, not {outputs[LOSS].dtype.value}"
            f"{list(outputs[LOSS].shape)}; reduce it, for instance by its mean"
        )
    if isinstance(loss, str):
        add_loss(importer.g, next(iter(outputs.values())), loss)
    importer.name_outputs(outputs)
    recognize(importer.g.graph, DROPPED_PATHS)
    return importer.g.graph


class _Importer(GraphWalker):
    """One import: walks the program's operators in order."""

    framework = "PyTorch"
    complex_result = "it is complex; return torch.view_as_real of it"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.memory = Memory(self.g, self._derive)
        self.known = self.memory.known
        self.state: set[Node] = set()
        """Placeholders of the module's parameters, buffers and tensors."""
        self.buffers: dict[Node, Tensor] = {}
        """Placeholders of buffers that a step may write, and their values before it."""
        self.scratch: set[Node] = set()
        """Placeholders of tensors whose values do not persist between steps."""
        self.variables: set[Node] = set()
        """Names that a derivative within the model is taken of."""

    def declare(self, program: "ExportedProgram", module: "nn.Module") -> None:
        """Register the placeholders."""
        declared = declare(self.g, program, module, self.problems)
        inputs = program.graph_signature.user_inputs
        for node in placeholders(program.graph.nodes):
            self.memory.storages.add(node)
            if node.name not in inputs:
                self.state.add(node)
        self.known.update(declared)
        self.variables = variables_of(program.graph)
        params = program.graph_signature.inputs_to_parameters
        buffers = program.graph_signature.inputs_to_buffers
        for node in self.variables & declared.keys():
            if node.name not in {**params, **buffers}:
                self.known[node] = self._variable(self.known[node])
        for node, value in declared.items():
            if isinstance(value, torch.Tensor) and node.name not in params and is_scratch(node):
                self.scratch.add(node)
            if node.name in buffers and isinstance(value, Tensor):
                self.buffers[node] = value

    def walk(self, owner: torch.nn.Module, nodes: Iterable[Node]) -> None:
        """Build every operator in order; `owner` holds the subgraphs that they refer to."""
        for node in nodes:
            if node.op == "get_attr":
                self.known[node] = operator.attrgetter(str(node.target))(owner)
            elif node.op == "call_function":
                self._call(node)

    def keep_buffers(self, program: "ExportedProgram", module: "nn.Module") -> None:
        """Write the last value of each buffer that the step changes."""
        names = program.graph_signature.inputs_to_buffers
        written = [
            node for node, before in self.buffers.items() if self.known[node] not in (before, None)
        ]
        with self.noting(type(module).__name__, ""):
            for node in written:
                keep(self.g, self.buffers[node].value, self.memory.current(node))
            if written:
                check_assigned(program)
                args, kwargs = program.example_inputs
                check_evaluation(module, args, kwargs, [names[node.name] for node in written])

    def outputs(self, program: "ExportedProgram", *, own_loss: bool) -> dict[str, Tensor]:
        """Name the module's results: "output", "output.0", or by the keys of a mapping.

        With `own_loss` it returns (outputs, loss).
        """
        flat = list(results_of(program.graph_module))
        names = output_names(program.call_spec.out_spec, len(flat), own_loss)
        tensors: dict[str, Tensor] = {}
        for name, result in zip(names, flat, strict=True):
            tensor = self.output(name, result) if isinstance(result, Node) else None
            if tensor is not None:
                tensors[name] = tensor
        return tensors

    def _call(self, node: Node) -> None:
        """Build one operator, or note why not."""
        written = written_by(node)
        recorded = not (UNRECORDED in node.meta or str(node.target).startswith(UNSEEN))
        origin = written[0] if written else None
        with self.building(str(node.target), module_path(node)):
            result = self._derive(node)
            if node in self.variables:
                result = self._variable(result)
            for name in written:
                self._write(name, result, recorded=recorded)
            self.memory.add(node, result if origin is None else self.known[origin], origin)
            return
        for name in written:
            self.known.update(dict.fromkeys(self.memory.storages.path(name)))
        self.memory.add(node, None, origin)

    def _derive(self, node: Node) -> Known:
        """Compute an operator's result from the current values of its arguments."""
        result = self._evaluate(node)
        return self.memory.detached(result) if UNRECORDED in node.meta else result

    def _variable(self, value: Known) -> Known:
        """Make a value distinct from other uses of the same numbers."""
        if not isinstance(value, (Tensor, torch.Tensor)):
            return value
        return variable(self.g, self.memory.in_graph(value))

    def _evaluate(self, node: Node) -> Known:
        if node.target is operator.getitem:
            return self._part(node)
        if str(node.target) == AUTOCAST:
            raise Unsupported(ROUNDED)
        if not isinstance(node.target, torch._ops.OpOverload):
            return self._of_python(node)
        overload = str(node.target).removeprefix("aten.")
        if overload.startswith("_assert"):
            return None
        check_order(node)
        if any(self._is_unregistered(written) for written in written_by(node)):
            raise Unsupported(RENORM if overload.startswith("embedding_renorm") else STATE_WRITE)
        self.memory.check_apart(node)
        sources = [self.memory.current(source) for source in node.all_input_nodes]
        drawn = torch.Tag.nondeterministic_seeded in node.target.tags
        own = node.target.namespace == "pockengine"
        if not (drawn or own) and all(isinstance(source, torch.Tensor) for source in sources):
            return self._constant(node)
        return self._apply(node, overload)

    def _part(self, node: Node) -> Known:
        """Return one of an operator's results; recompute them if requested again after a write."""
        sequence, index = node.args
        if is_empty(node):
            return without_elements(node)
        parts = self._derive(sequence) if node in self.known else self.known[sequence]
        return parts if parts is None or isinstance(parts, Missing) else parts[index]

    def _apply(self, node: Node, overload: str) -> Known:
        """Build one operator by its rule, or else by PyTorch's definition of it."""
        refused = any(self.known[source] is None for source in node.all_input_nodes)
        if refused and varies(node):  # as does its source, which was named
            return None
        shape, dtype = result_type(node)
        if dtype is not None and 0 in shape and not overload.startswith("split"):
            return without_elements(node)
        numbers = self._is_complex(node)
        rule = complex_rule_for(overload) if numbers else rule_for(overload)
        nothing = self._reads_nothing(node) and not overload.startswith("cat.")
        if nothing and overload.startswith(WRITES):
            return self.memory.current(node.args[0])
        if rule is None or nothing:
            return self._expand(node)
        missing = next((self.known[x] for x in node.all_input_nodes if self._is_missing(x)), None)
        if missing is not None:
            return missing
        arguments = {name: self.tensor(arg) for name, arg in self._bound(node).items()}
        if refused:
            return None
        arguments = rounded_arguments(self.g, node, arguments)
        result = rule(AtenContext(self.g, shape, dtype), **arguments)
        if numbers and written_by(node):
            raise Unsupported(COMPLEX_WRITE)
        if written_by(node) and isinstance(result, Tensor) and dtype is not None:
            result = emit.cast(self.g, result, dtype)  # the written tensor keeps its type
        result = fitted(self.g, node, result)
        self._check(node, result)
        return result

    def _check(self, node: Node, result: Any) -> None:
        """Compare a rule's result with PyTorch's own shapes and types."""
        values = node.meta.get("val")
        single = isinstance(result, (Tensor, Complex))
        for built, value in [(result, values)] if single else zip(result, values, strict=False):
            if isinstance(built, (Tensor, Complex)) and isinstance(value, torch.Tensor):
                named = f"{value.dtype}{list(value.shape)}"
                self.check_result(built, tuple(value.shape), WITHIN.get(value.dtype), named)

    def _is_complex(self, node: Node) -> bool:
        """Whether an operator reads or returns complex numbers."""
        values = [name.meta.get("val") for name in (node, *node.all_input_nodes)]
        parts = [
            x for value in values for x in (value if isinstance(value, tuple | list) else [value])
        ]
        return any(isinstance(part, torch.Tensor) and part.is_complex() for part in parts)

    def _bound(self, node: Node) -> dict[str, Any]:
        """Return the arguments by name, without the parts of lists that have no elements."""
        bound = arguments_of(node)
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

    def _of_python(self, node: Node) -> Known:
        """Compute with numbers, or gather results in a named tuple, as definitions of operators."""
        if node.target in ON_NUMBERS:
            known = [self.tensor(part) for part in node.args]
            return None if None in known else ON_NUMBERS[node.target](self.g, *known)
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
        inside = placeholders(body.graph.nodes)
        for inner, source in zip(inside, node.all_input_nodes, strict=True):
            if self.memory.current(source) is None:
                return None
            self.memory.add(inner, self.known[source], origin=source)
        self.walk(body, body.graph.nodes)
        results = results_of(body)
        if isinstance(results, (list, tuple)):
            return [self._result(result) for result in results]
        return self._result(results)

    def _result(self, argument: Any) -> Known:
        """Return the value of a result; an unused one may be missing or have no elements."""
        if isinstance(argument, Node) and (self._is_missing(argument) or self._is_empty(argument)):
            return self.known[argument]
        return self.tensor(argument)

    def tensor(self, known: Any) -> Known:
        """Replace traced names by their values, inside lists too."""
        if isinstance(known, Node):
            return self.memory.tensor(known)
        if isinstance(known, (list, tuple)):
            return [self.tensor(item) for item in known]
        return known

    def _is_unregistered(self, name: Node) -> bool:
        """Return whether this is memory of the module that is not one of its buffers."""
        storages = self.memory.storages
        shared = self.state & {*storages.path(name), *storages.sharers(name)}
        if len(shared) == 1 and shared <= self.scratch:
            return False
        return bool(shared) and (len(shared) > 1 or not shared <= self.buffers.keys())

    def _write(self, name: Node, value: Known, *, recorded: bool) -> None:
        """Write to a name; a buffer's new value is a separate node."""
        root = self.memory.storages.path(name)[-1]
        buffer = self.buffers.get(root)
        whole = buffer is not None and isinstance(value, Tensor) and value.shape == buffer.shape
        self.memory.write(name, renewed(self.g, value) if whole else value, recorded=recorded)
        if buffer is not None and not whole and isinstance(self.known[root], Tensor):
            self.known[root] = renewed(self.g, self.known[root])

    def _constant(self, node: Node) -> Known:
        """Run an operator that reads constants only (arange, zeros, ...) now."""
        args, kwargs = torch.fx.map_arg(
            (node.args, node.kwargs), lambda source: self.memory.current(source).clone()
        )
        with torch.no_grad():
            result = node.target(*args, **kwargs)
        if str(node.target).startswith(UNFILLED):
            result.zero_()  # the memory's old content would be in the generated code
        return result
