"""Passes as text: `fuse{target='rpi4'}`, `differentiate{trained={'w': None}, optimizer=Sgd()}`.

The options are the fields of the pass's class; default values are omitted. A value is a literal, or
a call of an optimizer (`Sgd(momentum=0.9)`), `Clip`, `range` or `frozenset`; a target is the name
of its device.
"""

import ast
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from typing import Any

from pockengine.compiler.optim import NAMED, Groups, LoraPlus, Maximize, Scaled
from pockengine.compiler.passes.backward.differentiate import Clip
from pockengine.compiler.passes.base import Option, Pass, options_of
from pockengine.compiler.passes.catalog import find_pass
from pockengine.compiler.passes.forward.add_noise import EmbeddingNoise
from pockengine.compiler.passes.option_types import accepts
from pockengine.compiler.sparse.lora import Adapter
from pockengine.compiler.target import Target
from pockengine.errors import CompileError

FindTarget = Callable[[str], Target]
"""Returns the target of a device name."""

_DATA: tuple[type[Any], ...] = (
    Adapter,
    Clip,
    EmbeddingNoise,
    Groups,
    LoraPlus,
    Maximize,
    Scaled,
    *NAMED.values(),
)
CALLS: Mapping[str, Callable[..., Any]] = {
    "range": range,
    "frozenset": frozenset,
    **{kind.__name__: kind for kind in _DATA},
}
"""Functions that a value may call."""


def print_pass(value: Pass) -> str:
    """Return the text of a pass; CompileError for an option without a text form."""
    shown = []
    for name, option in options_of(type(value)).items():
        setting = getattr(value, name)
        if setting != option.default:
            if (text := _show(setting)) is None:
                raise CompileError(f"pass {value.name}: option {name} has no text: {setting!r}")
            shown.append(f"{name}={text}")
    return value.name + (f"{{{', '.join(shown)}}}" if shown else "")


def print_passes(passes: Sequence[Pass]) -> str:
    """Return the passes as text, one per line."""
    return "".join(f"{print_pass(value)}\n" for value in passes)


def parse_pass(text: str, find_target: FindTarget) -> Pass:
    """Parse a pass; CompileError names the pass, the option and its possible values."""
    match = re.fullmatch(r"\s*(\w+)\s*(?:\{(.*)\})?\s*", text, re.DOTALL)
    if match is None:
        raise CompileError(f"{text!r} is no pass; write NAME or NAME{{option=value, ...}}")
    kind = find_pass(match[1])
    options = options_of(kind)
    settings = {str(word.arg): word.value for word in _keywords(text, match[2] or "")}
    _check_names(kind.name, options, settings)
    values = {
        name: _option(text, options[name], node, find_target) for name, node in settings.items()
    }
    for name, value in values.items():
        if not accepts(options[name].type, value):
            takes = f"option {name} takes {_values(options[name])}, not {value!r}"
            raise CompileError(f"pass {kind.name}: {takes}")
    return kind(**values)


def parse_passes(text: str, find_target: FindTarget) -> list[Pass]:
    """Parse the output of `print_passes`."""
    return [parse_pass(line, find_target) for line in text.splitlines()]


def _keywords(text: str, inside: str) -> list[ast.keyword]:
    try:
        call = ast.parse(f"f({inside})", mode="eval").body
    except SyntaxError as error:
        raise CompileError(f"{text!r}: {error.msg}; options are NAME=VALUE, ...") from error
    if not isinstance(call, ast.Call) or call.args or any(not word.arg for word in call.keywords):
        raise CompileError(f"{text!r}: options are NAME=VALUE, ...")
    return call.keywords


def _check_names(name: str, options: Mapping[str, Option], settings: Collection[str]) -> None:
    """Raise CompileError for an unknown option, or a missing one."""
    unknown = [each for each in settings if each not in options]
    missing = [each for each, option in options.items() if option.required and each not in settings]
    if unknown:
        known = f"its options are {', '.join(options)}" if options else "it takes none"
        raise CompileError(f"pass {name} has no option {', '.join(unknown)}; {known}")
    if missing:
        needed = "; ".join(f"{each}: {_values(options[each])}" for each in missing)
        example = ", ".join(f"{each}=..." for each in missing)
        raise CompileError(f"pass {name} needs {needed}; write {name}{{{example}}}")


def _values(option: Option) -> str:
    """Describe the values that an option takes in text."""
    if option.type is Target:
        return "the name of a device"
    if not isinstance(option.type, type) or option.type in (bool, int, str):
        return option.values
    kinds = (each.__name__ for each in _DATA if issubclass(each, option.type))
    return f"a call of {', '.join(kinds)}"


def _option(text: str, option: Option, node: ast.expr, find_target: FindTarget) -> Any:
    if option.type is Target:
        # A device name may stand without quotes, although jetson-orin parses as a subtraction.
        return find_target(ast.unparse(node).strip("'").replace(" ", ""))
    return _value(text, node)


def _show(value: Any) -> str | None:
    """Format a value; None if it has no text form."""
    if isinstance(value, Target):
        return repr(value.name)
    if isinstance(value, float):
        return None if math.isnan(value) else float.__repr__(value).replace("inf", "1e999")
    if value is None or isinstance(value, bool | int | str | range):
        return repr(value)
    if isinstance(value, Set):
        form = "frozenset(({},))" if value else "frozenset()"
        return _joined(form, [_show(item) for item in sorted(value)])
    if isinstance(value, tuple):
        return _joined("({},)", [_show(v) for v in value]) if value else "()"
    if isinstance(value, Mapping):
        items = [(_show(key), _show(item)) for key, item in value.items()]
        return _joined("{{{}}}", [v and f"{k}: {v}" for k, v in items])
    if is_dataclass(value) and type(value) in _DATA:
        changed = [each for each in fields(value) if getattr(value, each.name) != each.default]
        shown = [(each.name, _show(getattr(value, each.name))) for each in changed]
        parts = [text and f"{name}={text}" for name, text in shown]
        return _joined(f"{type(value).__name__}({{}})", parts)
    return None


def _joined(form: str, parts: Sequence[str | None]) -> str | None:
    known = [part for part in parts if part is not None]
    return form.format(", ".join(known)) if len(known) == len(parts) else None


def _value(text: str, node: ast.expr) -> Any:
    """Parse a literal, or a call of `CALLS`, without evaluating anything else."""
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
