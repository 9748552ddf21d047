"""Passes as text: `fuse{target=rpi4}`, `differentiate{trained={'w': None}, optimizer=sgd()}`.

Parameters are literals, calls of an optimiser (`Sgd(momentum=0.9)`), of `Clip` or of `range`, and
`target`, a device's name. What has its default is left out, and so is what has no text: the
functions and tables by which passes of one pipeline work together.
"""

import ast
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from typing import Any

from pockengine.compiler.optim import NAMED
from pockengine.compiler.passes.catalogue import Pass, parameters_of
from pockengine.compiler.passes.differentiate import Clip
from pockengine.compiler.target import Target
from pockengine.errors import CompileError

FindTarget = Callable[[str], Target]
"""Gives the target of a device by its name."""

TARGET = "target"
SHARED = ("copies", "report")
"""Parameters by which the passes of one pipeline work together: not written."""

CALLS: Mapping[str, Callable[..., Any]] = {
    "Clip": Clip,
    "range": range,
    "frozenset": frozenset,
    **{kind.__name__: kind for kind in NAMED.values()},
}


def print_pass(value: Pass) -> str:
    """Return the text of a pass."""
    known = parameters_of(value.name)
    shown = [
        f"{name}={text}"
        for name, parameter in value.parameters.items()
        if name not in SHARED
        if parameter != known[name].default and (text := _show(parameter)) is not None
    ]
    return value.name + (f"{{{', '.join(shown)}}}" if shown else "")


def print_passes(passes: Sequence[Pass]) -> str:
    """Return one line for each pass."""
    return "".join(f"{print_pass(value)}\n" for value in passes)


def parse_pass(text: str, find_target: FindTarget) -> Pass:
    """Read a pass; CompileError says what of the text is none."""
    match = re.fullmatch(r"\s*(\w+)\s*(?:\{(.*)\})?\s*", text, re.DOTALL)
    if match is None:
        raise CompileError(f"{text!r} is no pass; write NAME or NAME{{parameter=value, ...}}")
    name, inside = match[1], match[2] or ""
    parameters: dict[str, Any] = {}
    try:
        call = ast.parse(f"f({inside})", mode="eval").body
    except SyntaxError as error:
        raise CompileError(f"{text!r}: {error.msg}; parameters are NAME=VALUE, ...") from error
    if not isinstance(call, ast.Call) or call.args:
        raise CompileError(f"{text!r}: parameters are NAME=VALUE, ...")
    for word in call.keywords:
        if word.arg == TARGET:
            parameters[TARGET] = find_target(ast.unparse(word.value).strip("'").replace(" ", ""))
        else:
            parameters[str(word.arg)] = _value(text, word.value)
    return Pass(name, parameters)


def _show(value: Any) -> str | None:
    """Write a parameter; None for one that has no text."""
    if isinstance(value, Target):
        return repr(value.name)
    if value is None or isinstance(value, bool | int | float | str | range):
        return repr(value)
    if isinstance(value, Set):
        form = "frozenset(({},))" if value else "frozenset()"
        return _joined(form, [_show(item) for item in sorted(value)])
    if isinstance(value, tuple):
        return _joined("({},)", [_show(v) for v in value]) if value else "()"
    if isinstance(value, Mapping):
        items = [(_show(key), _show(item)) for key, item in value.items()]
        return _joined("{{{}}}", [v and f"{k}: {v}" for k, v in items])
    if is_dataclass(value) and type(value).__name__ in CALLS:
        given = {f.name: getattr(value, f.name) for f in fields(value)}
        changed = [f"{name}={_show(v)}" for name, v in given.items() if v != _default(value, name)]
        return f"{type(value).__name__}({', '.join(changed)})"
    return None


def _default(value: Any, name: str) -> object:
    return next(f.default for f in fields(value) if f.name == name)


def _joined(form: str, parts: Sequence[str | None]) -> str | None:
    known = [part for part in parts if part is not None]
    return form.format(", ".join(known)) if len(known) == len(parts) else None


def _value(text: str, node: ast.expr) -> Any:
    """Read a literal, or a call of `CALLS`, without evaluating anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        words = {str(word.arg): _value(text, word.value) for word in node.keywords}
        try:
            return CALLS[node.func.id](*(_value(text, value) for value in node.args), **words)
        except TypeError as error:
            raise CompileError(f"{text!r}: {error}") from error
    if isinstance(node, ast.Tuple):
        return tuple(_value(text, value) for value in node.elts)
    if isinstance(node, ast.Dict) and None not in node.keys:
        keys = [_value(text, key) for key in node.keys if key is not None]
        return dict(zip(keys, (_value(text, value) for value in node.values), strict=True))
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise CompileError(
            f"{text!r}: {ast.unparse(node)} is no literal, and no call of {', '.join(CALLS)}"
        ) from error
