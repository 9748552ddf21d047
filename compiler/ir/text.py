"""Text form of graphs, which round-trips exactly: for dumps, tests and reviews.

    graph g {
      input %x: f32[2,3]
      param %fc.weight: f32[3,4] permutation=(1, 0)
      frozen %fc.mean: f32[4]
      constant %c_0: f32[] = 0.5
      %matmul_0: f32[2,4] = matmul %x, %fc.weight {transpose_a=False}
      sgd_update %fc.weight, %dw, %lr
      output y = %matmul_0
    }

Attrs with their default value are omitted; `recomputes=` names the first result of the node that
this one recomputes; a module path follows `@`; a fusion's body is indented below its node. A name
with characters outside `PLAIN` is quoted as in JSON. Params are printed without their contents,
which the caller passes to `parse_graph` (default: zeros).
"""

import ast
import json
import math
import re
from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from pockengine.compiler.ir.blocks import Blocks
from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.contents import Filled, InMemory
from pockengine.compiler.ir.graph import Graph, Node, Param, ParamKind, Space, Value
from pockengine.compiler.ir.quantization import PATTERN, parse_quantization
from pockengine.compiler.ir.recomputation import Recomputation
from pockengine.compiler.ir.scalars import numbers_of, of_numbers
from pockengine.compiler.ir.types import DType, TensorType
from pockengine.compiler.ops.registry import lookup
from pockengine.errors import GraphError

PLAIN = re.compile(r"[^\s,:=\"\\{}]+")
"""Names printed without quotes, if they are printable."""

_TEXT = r'"(?:[^"\\]|\\.)*"'
_BARE = r'(?:[^\s,:"][^\s,:]*)'
_NAME = rf"({_TEXT}|{_BARE})"
_WORD = rf"({_TEXT}|[^\s\"]\S*)"
_VALUE = rf"%(?:{_TEXT}|{_BARE})"
_TYPE = r"(\w+)\[([\d,]*)\]"
_RESULT = rf"{_VALUE}: \w+\[[\d,]*\]"
_SOURCE = re.compile(
    rf"(input|param|frozen|constant) %{_NAME}: {_TYPE}"
    rf"(?: permutation=(\([^)]*\)))?(?: source=({PATTERN}))?(?: blocks=(\d+)@(\d+))?"
    rf"(?: held=({PATTERN}))?"
    r"(?: kind=(\w+))?(?: space=(\w+))?(?: = (.*))?"
)
_NODE = re.compile(
    rf"(?:({_RESULT}(?:, {_RESULT})*) = )?(\w+)((?: {_VALUE},?)*)(?: \{{(.*)\}})?"
    rf"(?: recomputes=%{_NAME})?(?: @{_WORD})?"
)
_RECOMPUTATION = re.compile(r"recomputation \{(.*)\}")
_UNCHECKED = "indices unchecked"
_OUTPUT = re.compile(rf"output {_WORD} = %{_NAME}")
_GRAPH = re.compile(rf"graph {_WORD} \{{")
_BODY = re.compile(rf"(.*) body {_WORD} \{{")

_FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    GraphError,
    LookupError,
    MemoryError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""Exceptions for a malformed literal, or attrs of a wrong type."""


def _shown(name: str) -> str:
    plain = PLAIN.fullmatch(name) and name.isprintable()
    return name if plain else json.dumps(name)


def _named(text: str) -> str:
    return str(json.loads(text)) if text.startswith('"') else text


def _typed(value: Value) -> str:
    return f"%{_shown(value.name)}: {value.type}"


def print_graph(graph: Graph) -> str:
    """Return the text form, ending with a newline."""
    return "\n".join(_print_lines(graph, f"graph {_shown(graph.name)} {{")) + "\n"


def _print_lines(graph: Graph, header: str) -> list[str]:
    lines = [header]
    lines += [f"  input {_typed(value)}" for value in graph.inputs]
    for param in graph.params.values():
        kind = "param" if param.trainable else "frozen"
        lines.append(f"  {kind} {_typed(param.value)}{_print_traits(param)}")
    for value, data in graph.constants.items():
        lines.append(f"  constant {_typed(value)} = {_print_array(data)}")
    nodes = set(graph.nodes)
    for node in graph.nodes:
        lines += [f"  {line}" for line in _print_node(node, nodes)]
    for name, value in graph.outputs.items():
        lines.append(f"  output {_shown(name)} = %{_shown(value.name)}")
    if not graph.checks_indices:
        lines.append(f"  {_UNCHECKED}")
    if graph.recomputation is not None:
        report = {name: x for name, x in vars(graph.recomputation).items() if x is not None}
        lines.append(f"  recomputation {{{_print_attrs(report)}}}")
    return [*lines, "}"]


def _print_traits(param: Param) -> str:
    """Non-default properties of a param."""
    text = "" if param.permutation is None else f" permutation={param.permutation}"
    text += "" if param.source is None else f" source={param.source}"
    text += "" if param.blocks is None else f" blocks={param.blocks.bits}@{param.blocks.axis}"
    text += "" if param.quantization is None else f" held={param.quantization}"
    if param.kind is not ParamKind.default(param.trainable):
        text += f" kind={param.kind.value}"
    return text if param.space is None else f"{text} space={param.space.value}"


def _print_attrs(attrs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in attrs.items())


def _print_node(node: Node, nodes: Set[Node]) -> list[str]:
    defaults = lookup(node.op).attrs
    shown = {
        name: value
        for name, value in node.attrs.items()
        if name != "body" and repr(value) != repr(defaults[name])
    }
    text = ", ".join(_typed(value) for value in node.results)
    text += " = " if text else ""
    operands = ", ".join(f"%{_shown(value.name)}" for value in node.operands)
    text += f"{node.op} {operands}".rstrip()
    if shown:
        text += f" {{{_print_attrs(shown)}}}"
    if (first := node.recomputes) is not None and first in nodes:
        text += f" recomputes=%{_shown(first.results[0].name)}"
    if node.scope:
        text += f" @{_shown(node.scope)}"
    if "body" not in node.attrs:
        return [text]
    return _print_lines(node.attrs["body"], f"{text} body {_shown(node.attrs['body'].name)} {{")


def _print_array(data: np.ndarray) -> str:
    """Elements as Python literals: the shortest decimal that round-trips."""
    return repr(numbers_of(data).tolist())


def parse_graph(text: str, params: Mapping[str, np.ndarray] | None = None) -> Graph:
    """Parse a text form; GraphError names the malformed line."""
    lines = [line.strip() for line in text.split("\n")]
    numbered = [(i, s) for i, s in enumerate(lines, 1) if s and not s.startswith("#")]
    if not numbered:
        raise GraphError("line 1: expected `graph NAME {`, found nothing")
    match = _GRAPH.fullmatch(numbered[0][1])
    if not match:
        raise GraphError(f"line {numbered[0][0]}: expected `graph NAME {{`")
    parser = _Parser(_line_name(*numbered[0], match[1]), params or {})
    remaining = parser.parse(numbered[1:])
    if remaining:
        raise GraphError(f"line {remaining[0][0]}: text after the end of the graph")
    return parser.graph


def _line_name(number: int, line: str, text: str) -> str:
    try:
        return _named(text)
    except ValueError as error:
        raise GraphError(f"line {number}: {error}: {line}") from error


class _Parser:
    """Parser of one graph's lines; bodies are parsed by nested parsers."""

    def __init__(self, name: str, params: Mapping[str, np.ndarray]) -> None:
        self.graph = Graph(name)
        self.params = params
        self.values: dict[str, Value] = {}

    def parse(self, lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
        """Read up to the closing brace and return the remaining lines."""
        while lines:
            number, line = lines.pop(0)
            if line == "}":
                return lines
            try:
                lines = self._statement(line, lines)
            except _FAULTS as error:
                if isinstance(error, GraphError) and str(error).startswith("line "):
                    raise
                raise GraphError(f"line {number}: {error}: {line}") from error
        raise GraphError(f"graph {self.graph.name} has no closing brace")

    def _statement(self, line: str, lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
        source = _SOURCE.fullmatch(line)
        output = _OUTPUT.fullmatch(line)
        recomputation = _RECOMPUTATION.fullmatch(line)
        if source:
            self._source(*source.groups())
        elif line == _UNCHECKED:
            self.graph.checks_indices = False
        elif recomputation:
            self.graph.recomputation = Recomputation(**_parse_attrs(recomputation[1]))
        elif output:
            self.graph.outputs[_named(output[1])] = self._value(_named(output[2]))
        else:
            body = _BODY.fullmatch(line)
            if body:
                inner = _Parser(_named(body[2]), {})
                lines = inner.parse(lines)
                self._node(body[1], inner.graph)
            else:
                self._node(line, None)
        return lines

    def _source(self, kind: str, name: str, dtype: str, shape: str, *traits: str | None) -> None:
        order, source, bits, axis, quantization, purpose, space, data = traits
        name, type_ = _named(name), _parse_type(dtype, shape)
        value = self._define(Value(name, type_))
        if kind == "input":
            self.graph.inputs.append(value)
        elif kind == "constant":
            array = of_numbers(_literal(data or "None"), type_.dtype)
            self.graph.constants[value] = array.reshape(type_.shape)
        else:
            initial = self.params.get(name)
            contents = Filled(type_) if initial is None else InMemory(initial)
            permutation = None if order is None else ast.literal_eval(order)
            trainable = kind == "param"
            self.graph.params[name] = Param(
                value,
                contents,
                permutation,
                trainable=trainable,
                kind=ParamKind(purpose) if purpose else ParamKind.default(trainable),
                space=Space(space) if space else None,
                source=parse_quantization(source) if source else None,
                blocks=Blocks(int(bits), int(axis)) if bits and axis else None,
                quantization=parse_quantization(quantization) if quantization else None,
            )

    def _node(self, line: str, body: Graph | None) -> None:
        match = _NODE.fullmatch(line)
        if not match:
            raise GraphError("this is no statement")
        results, op, operands, attrs, first, scope = match.groups()
        values = tuple(self._value(_named(name)) for name in re.findall(rf"%{_NAME}", operands))
        node_attrs = _parse_attrs(attrs or "")
        if body is not None:
            node_attrs["body"] = body
        made = Builder(Graph("line")).emit(op, *values, **node_attrs)
        names = re.findall(rf"%{_NAME}: {_TYPE}", results or "")
        if [_parse_type(*name[1:]) for name in names] != [value.type for value in made.results]:
            raise GraphError(f"its results are {', '.join(str(v.type) for v in made.results)}")
        for value, (name, *_) in zip(made.results, names, strict=True):
            value.name = _named(name)
            self._define(value)
        made.scope = _named(scope or "")
        made.recomputes = self._value(_named(first)).node if first else None
        self.graph.nodes.append(made)

    def _value(self, name: str) -> Value:
        if name not in self.values:
            raise GraphError(f"%{name} is not defined")
        return self.values[name]

    def _define(self, value: Value) -> Value:
        if value.name in self.values:
            raise GraphError(f"%{value.name} is defined twice")
        self.values[value.name] = value
        return value


def _parse_type(dtype: str, shape: str) -> TensorType:
    return TensorType(DType(dtype), tuple(int(size) for size in shape.split(",") if size))


def _parse_attrs(text: str) -> dict[str, Any]:
    """Parse `name=literal, ...` like keyword arguments, without evaluating code."""
    call = _tree(f"f({text})")
    assert isinstance(call, ast.Call)
    return {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}


def _literal(text: str) -> Any:
    """Parse nested lists of numbers, with inf and nan as NumPy prints them."""
    return ast.literal_eval(_tree(text))


def _tree(text: str) -> ast.expr:
    tree = ast.parse(_finite(text), mode="eval").body
    if "nan" in text:
        tree = _Nan().visit(tree)
    return tree


class _Nan(ast.NodeTransformer):
    """Makes the name `nan` a number."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace the name, and no other."""
        return ast.Constant(math.nan) if node.id == "nan" else node


def _finite(text: str) -> str:
    """Write infinities as literals that overflow to them; `inf` is not a literal."""
    return re.sub(r"\binf\b", "1e999", text)
