"""Schemes: parameter name -> frozen, full, or a share of its channels. A readable TOML file.

default = "frozen"

[params]                                    # patterns as in a shell; the last match wins
"*.bias" = "full"
"features.1[4-7].conv.0.0.weight" = 0.25    # the first quarter of its input channels
"features.18.0.weight" = [0, 32]            # channels 0 to 31
"classifier.1.weight" = "full"
"""

import difflib
import fnmatch
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pockengine.compiler.autodiff import Channels
from pockengine.compiler.ir.graph import Graph, Node, Param
from pockengine.compiler.ops.registry import lookup
from pockengine.errors import SchemeError


@dataclass(frozen=True)
class Choice:
    """How one parameter trains: not at all, whole, a leading share, or a range of channels."""

    kind: str
    share: float = 1.0
    channels: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        if self.kind == "share":
            return f"{self.share:g}"
        return f"[{self.channels[0]}, {self.channels[1]}]" if self.kind == "range" else self.kind


FROZEN = Choice("frozen")
FULL = Choice("full")


@dataclass(frozen=True)
class Scheme:
    """Rules in order, the last match of a parameter's name wins; `default` where none matches."""

    name: str
    rules: tuple[tuple[str, Choice], ...]
    default: Choice = FROZEN

    def resolve(self, graph: Graph) -> dict[str, Channels]:
        """Trained params of `graph` with their channel range (None: all), in the graph's order.

        SchemeError names a pattern that matches nothing, or a parameter that cannot train so.
        """
        names = [name for name, param in graph.params.items() if param.trainable]
        for pattern, _ in self.rules:
            if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
                raise _unknown(self.name, pattern, names)
        trained: dict[str, Channels] = {}
        for name in names:
            training = self._training_of(name)
            if training.kind != "frozen":
                trained[name] = _channels(self.name, graph, graph.params[name], training)
        if not trained:
            raise SchemeError(
                f"scheme {self.name}: it freezes every parameter; nothing would train"
            )
        return trained

    def _training_of(self, name: str) -> Choice:
        matches = [
            training for pattern, training in self.rules if fnmatch.fnmatchcase(name, pattern)
        ]
        return matches[-1] if matches else self.default


def load_scheme(path: Path) -> Scheme:
    """Read a scheme file; SchemeError names the file and what is wrong in it."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SchemeError(f"scheme file {path}: {error}") from error
    unknown = sorted(set(table) - {"default", "params"})
    params = table.get("params", {})
    if unknown or not isinstance(params, Mapping):
        raise SchemeError(f"scheme file {path}: unknown {unknown}; it holds `default` and [params]")
    where = f"scheme file {path}"
    rules = tuple(
        (name, parse_training(value, f"{where}: {name}")) for name, value in params.items()
    )
    default = parse_training(table.get("default", "frozen"), f"{where}: default")
    return Scheme(path.stem, rules, default)


def parse_training(value: Any, where: str) -> Choice:
    """Turn a TOML value into a Choice: "frozen", "full", a share in (0, 1], or [start, stop]."""
    if value in ("frozen", "full"):
        return Choice(value)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and 0 < value <= 1:
        return FULL if value == 1 else Choice("share", share=float(value))
    if isinstance(value, list) and len(value) == 2 and all(type(item) is int for item in value):
        start, stop = value
        if 0 <= start < stop:
            return Choice("range", channels=(start, stop))
    raise SchemeError(
        f'{where} = {value!r}: use "frozen", "full", a share between 0 and 1, or [start, stop]'
    )


def channel_axis(scheme: str, graph: Graph, param: Param) -> int:
    """Axis along which some channels of this weight can train; SchemeError when there is none."""
    readers = [node for node in graph.nodes if param.value in node.operands]
    if len(readers) != 1:
        raise SchemeError(
            f"scheme {scheme}: {param.name} is read by {len(readers)} nodes, so a share of its "
            'channels cannot train; use "full" or "frozen"'
        )
    axis = _axis_in(readers[0], param)
    if axis is None:
        raise SchemeError(
            f"scheme {scheme}: {param.name} {param.value.type} has no channels to slice in "
            f'{readers[0].op}; use "full" or "frozen"'
        )
    return axis


def _axis_in(node: Node, param: Param) -> int | None:
    definition = lookup(node.op)
    position = definition.operand_name(node.operands.index(param.value))
    rule = definition.channel_axis.get(position)
    return None if rule is None else rule(node)


def _channels(scheme: str, graph: Graph, param: Param, training: Choice) -> Channels:
    if training.kind == "full":
        return None
    count = param.value.shape[channel_axis(scheme, graph, param)]
    if training.kind == "share":
        kept = max(1, round(count * training.share))
        return None if kept == count else range(kept)
    start, stop = training.channels
    if stop > count:
        raise SchemeError(
            f"scheme {scheme}: {param.name} has {count} channels; [{start}, {stop}] is outside"
        )
    return None if (start, stop) == (0, count) else range(start, stop)


def _unknown(scheme: str, pattern: str, names: Iterable[str]) -> SchemeError:
    close = difflib.get_close_matches(pattern, list(names), n=3)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return SchemeError(f"scheme {scheme}: {pattern!r} matches no parameter of the model{hint}")
