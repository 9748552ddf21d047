"""Whether a gradient exists through a frontend's rule: data flow over the sources of the rule.

A value depends differentiably on the operator's tensors if some path of ops with gradient rules
leads to it. Functions of the package are followed with their arguments; any other call passes on
what its arguments have. Branches are joined, so the answer holds for some use of the operator.
"""

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from types import FunctionType
from typing import Any

from pockengine.compiler.ir import DType
from pockengine.compiler.ops.custom import CUSTOM
from pockengine.compiler.ops.elementwise import STOP
from pockengine.compiler.ops.registry import OpDef, all_ops
from pockengine.docs.site.sources import parse

PACKAGE = "pockengine."
FACTS = frozenset(("dtype", "g", "layout", "name", "rank", "shape", "size", "type"))
"""Attributes of a tensor that do not depend on its elements."""
TENSORS = ("Complex", "Operand", "Tensor", "Value")
MOST_CALLS = 3
"""Nested calls of one function that are followed; recursion may make ever longer lists."""
_ACTIVE: list[Any] = []
"""The functions of the nested calls."""
_KNOWN: dict[tuple[Any, str], Any] = {}
"""Results by function and arguments."""

Flow = Any
"""True where a gradient flows; a list of these; any other object is itself, and has no gradient."""


def trains(rule: Callable[..., Any]) -> bool:
    """Whether a result of the rule depends differentiably on one of its tensors."""
    node = _definition(rule)
    if node is None:
        return False
    lean = isinstance(node, ast.Lambda)
    arguments = {one.arg: _is_tensor(one.annotation, lean) for one in _parameters(node)[1:]}
    if node.args.vararg:
        arguments[node.args.vararg.arg] = True
    return _flows(_Body(rule, node, arguments).result())


def _is_tensor(annotation: ast.expr | None, lean: bool) -> bool:
    if annotation is None:
        return lean
    return any(name in ast.unparse(annotation) for name in TENSORS)


def _flows(value: Flow) -> bool:
    return any(map(_flows, value)) if isinstance(value, list | tuple) else value is True


def _join(values: Iterable[Flow]) -> Flow:
    """Return what a value is that may be any of these."""
    known = [value for value in values if value is not None and value is not False]
    if len(known) == 1 or (known and all(isinstance(one, str) for one in known)):
        return known[0]
    lists = [one for one in known if isinstance(one, list)]
    if lists and len(lists) == len(known) and len({len(one) for one in lists}) == 1:
        return [_join(parts) for parts in zip(*lists, strict=True)]
    return any(map(_flows, known))


@cache
def _ops() -> Mapping[str, OpDef]:
    return {op.name: op for op in all_ops()}


@cache
def _places(module: str) -> Mapping[int, list[ast.AST]]:
    """Return the functions of a module by their first lines."""
    found: dict[int, list[ast.AST]] = {}
    for node in ast.walk(parse(module)):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            marks = getattr(node, "decorator_list", [])
            found.setdefault(min([node.lineno, *(m.lineno for m in marks)]), []).append(node)
    return found


def _definition(function: Any) -> ast.FunctionDef | ast.Lambda | None:
    """Return the syntax of a function of the package; None for any other object."""
    if not isinstance(function, FunctionType) or not function.__module__.startswith(PACKAGE):
        return None
    names = [*inspect.signature(function).parameters]
    for node in _places(function.__module__).get(function.__code__.co_firstlineno, ()):
        if [one.arg for one in _parameters(node)] == names:
            return node  # type: ignore[return-value]
    return None


def _parameters(node: Any) -> list[ast.arg]:
    inner = node.args
    stars = [one for one in (inner.vararg, inner.kwarg) if one]
    found = [*inner.posonlyargs, *inner.args, *inner.kwonlyargs]
    if inner.vararg:
        found.insert(len(inner.posonlyargs) + len(inner.args), stars.pop(0))
    return [*found, *stars]


@dataclass
class _Body:
    """One call of a function: its local names, as far as they are known."""

    function: Any
    node: ast.FunctionDef | ast.Lambda
    names: dict[str, Flow]
    returned: list[Flow] = field(default_factory=list)

    def result(self) -> Flow:
        """Return the join of what the function returns."""
        if isinstance(self.node, ast.Lambda):
            return self.value(self.node.body)
        for _ in range(2):  # a loop carries values to its next turn
            self.returned.clear()
            for statement in self.node.body:
                self._run(statement)
        return _join(self.returned)

    def _run(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Return(value=value):
                self.returned.append(self.value(value))
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, self.value(value))
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, self.value(value))
            case ast.AugAssign(target=target, value=value):
                self._bind(target, _join([self.value(target), self.value(value)]))
            case ast.For(target=target, iter=source):
                self._bind_each(target, source)
            case ast.Expr(value=value):
                self._append(value)
            case ast.FunctionDef(name=name):
                self.names[name] = (self, statement)
                return
        for one in (*getattr(statement, "body", ()), *getattr(statement, "orelse", ())):
            self._run(one)

    def _append(self, value: ast.expr) -> None:
        """Join what a method such as `append` adds to a list."""
        match value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name)), args=args) if args:
                if name in self.names and any(_flows(self.value(one)) for one in args):
                    self.names[name] = True

    def _bind_each(self, target: ast.expr, source: ast.expr) -> None:
        values = self.value(source)
        for one in values if isinstance(values, list) and values else [values]:
            self._bind(target, one)

    def _bind(self, target: ast.expr, value: Flow) -> None:
        match target:
            case ast.Name(id=name):
                before = self.names.get(name)
                self.names[name] = value if before is None else _join([before, value])
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                same = isinstance(value, list) and len(value) == len(parts)
                for i, part in enumerate(parts):
                    self._bind(part, value[i] if same else _flows(value))
            case ast.Starred(value=inner) | ast.Subscript(value=inner):
                self._bind(inner, _flows(value) or None)

    def value(self, node: ast.expr | None) -> Flow:
        """Return what an expression is."""
        match node:
            case ast.Constant(value=constant):
                return constant if isinstance(constant, str) else None
            case ast.Name(id=name):
                return self._named(name)
            case ast.Attribute(value=inner, attr=name):
                return _attribute(self.value(inner), name)
            case ast.Subscript(value=inner, slice=place):
                return self._element(self.value(inner), place)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return [self.value(part) for part in parts]
            case ast.IfExp(body=body, orelse=other):
                return _join([self.value(body), self.value(other)])
            case ast.Call():
                return self._call(node)
            case ast.Lambda():
                return (self, node)
            case None | ast.Compare():
                return None
        return self._joined(node)

    def _joined(self, node: ast.expr) -> Flow:
        """Return the join of an expression's parts; of a comprehension, of its elements."""
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            for part in node.generators:
                self._bind_each(part.target, part.iter)
            return _flows(self.value(node.elt))
        inner = ast.iter_child_nodes(node)
        return _join([self.value(part) for part in inner if isinstance(part, ast.expr)])

    def _element(self, base: Flow, place: ast.expr) -> Flow:
        index = place.value if isinstance(place, ast.Constant) else None
        if isinstance(base, list) and isinstance(index, int) and index < len(base):
            return base[index]
        return _flows(base)

    def _named(self, name: str) -> Flow:
        if name in self.names:
            return self.names[name]
        free, cells = self.function.__code__.co_freevars, self.function.__closure__ or ()
        if name in free:
            return cells[free.index(name)].cell_contents
        return self.function.__globals__.get(name)

    def _call(self, node: ast.Call) -> Flow:
        callee = node.func
        if isinstance(callee, ast.Attribute) and ast.unparse(callee.value).split(".")[-1] == "g":
            if callee.attr == "emit" and node.args:
                return self._op(self.value(node.args[0]), node.args[1:], node.keywords)
            return self._op(callee.attr, node.args, node.keywords)
        function = self.value(callee)
        arguments = [self.value(one) for one in node.args]
        named = {one.arg: self.value(one.value) for one in node.keywords if one.arg}
        return self._called(
            function, arguments, named, [isinstance(x, ast.Starred) for x in node.args]
        )

    def _op(self, op: Flow, args: list[ast.expr], keywords: list[ast.keyword]) -> Flow:
        """Return whether the op has a gradient for an operand that has one."""
        values = [self.value(one) for one in args]
        definition = _ops().get(op) if isinstance(op, str) else None
        if definition is None or op in (STOP, CUSTOM):
            return op != STOP and any(map(_flows, values))
        starred = any(isinstance(one, ast.Starred) for one in args)
        places = range(max(len(definition.operands), len(args)))
        ruled = [definition.formula is not None or _has_rule(definition, i) for i in places]
        if starred:
            return any(ruled) and any(map(_flows, values))
        return any(_flows(x) and ruled[i] for i, x in enumerate(values))

    def _called(
        self, function: Any, positional: list[Flow], named: dict[str, Flow], starred: list[bool]
    ) -> Flow:
        while isinstance(function, partial):
            positional = [*function.args, *positional]
            starred = [*(False for _ in function.args), *starred]
            named = {**function.keywords, **named}
            function = function.func
        whole = any(isinstance(x, DType) and not x.differentiable for x in positional)
        if whole and getattr(function, "__name__", "") == "cast":
            return None
        owner, node = self.function, None
        inner: dict[str, Flow] = {}
        if isinstance(function, tuple) and len(function) == 2 and isinstance(function[0], _Body):
            owner, node, inner = function[0].function, function[1], dict(function[0].names)
        elif (node := _definition(function)) is not None:
            owner = function
        passed = any(map(_flows, (*positional, *named.values())))
        if node is None:
            return passed
        arguments = _bound(node, positional, named, starred)
        key = (function, _key(arguments)) if owner is function else None
        if key is None:
            return _Body(owner, node, inner | arguments).result()
        if key not in _KNOWN:
            if _ACTIVE.count(function) == MOST_CALLS:
                return passed
            _KNOWN[key] = passed  # of a call within itself
            _ACTIVE.append(function)
            _KNOWN[key] = _Body(owner, node, arguments).result()
            _ACTIVE.pop()
        return _KNOWN[key]


def _attribute(base: Flow, name: str) -> Flow:
    if not isinstance(base, bool | str | list | tuple | None):
        return getattr(base, name, None)
    return None if name in FACTS else _flows(base)


def _key(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={_key(value[name])}" for name in sorted(value))
    if isinstance(value, list):
        return f"[{','.join(map(_key, value))}]"
    known = isinstance(value, str | bool) or value is None
    return repr(value) if known else str(id(value))


def _has_rule(definition: OpDef, place: int) -> bool:
    try:
        return definition.vjp_rule(place) is not None
    except IndexError:
        return False


def _bound(
    node: Any, positional: list[Flow], named: dict[str, Flow], starred: list[bool]
) -> dict[str, Flow]:
    """Return the arguments by the names of a function's parameters."""
    names = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
    found: dict[str, Flow] = dict(named)
    if any(starred):
        first = starred.index(True)
        starred_flow = any(map(_flows, positional[first:]))
        found.update(zip(names, positional[:first], strict=False))
        found.update((name, starred_flow) for name in names[first:] if name not in found)
        extra: Flow = starred_flow or any(map(_flows, positional[len(names) :]))
    else:
        found.update(zip(names, positional, strict=False))
        extra = positional[len(names) :]
    if node.args.vararg:
        found[node.args.vararg.arg] = extra
    return found
