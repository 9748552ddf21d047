"""Schemes: parameter name -> how it trains. A readable TOML file.

    default = "frozen"

    [params] # patterns as in a shell; the last match wins
    "*.bias" = "full"
    "features.1[4-7].conv.0.0.weight" = 0.25 # the first quarter of its input channels
    "features.18.0.weight" = { share = 0.5, by = "magnitude" }
    "classifier.1.weight" = "full"

compiler/sparse/choice.py lists the possible values.
"""

import difflib
import fnmatch
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pockengine.compiler.autodiff import Channels
from pockengine.compiler.channel_readers import ChannelReader, channel_reader
from pockengine.compiler.ir.graph import Graph, Param
from pockengine.compiler.sparse.channels import channel_count, channel_set, rank
from pockengine.compiler.sparse.choice import (
    FROZEN,
    FULL,
    LORA,
    SIMPLE,
    ParamChoice,
    parse_choice,
    quote,
    write_choice,
)
from pockengine.errors import SchemeError, reason_of
from pockengine.files import read_toml, write_text_whole

__all__ = ["FROZEN", "FULL", "ParamChoice", "Scheme", "channel_axis", "load_scheme", "save_scheme"]


@dataclass(frozen=True)
class Scheme:
    """Rules in order: the last match of a parameter's name wins; `default` if none matches."""

    name: str
    rules: tuple[tuple[str, ParamChoice], ...]
    default: ParamChoice = FROZEN

    def resolve(self, graph: Graph) -> dict[str, Channels]:
        """Params that train directly, with their channels (None: all), in the graph's order.

        SchemeError names a pattern without a match, or a parameter that cannot train this way.
        """
        names = [name for name, param in graph.params.items() if param.trainable]
        for pattern, _ in self.rules:
            if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
                raise _unknown(self.name, pattern, names)
        choices = self.choices(graph)
        trained = {
            name: _channels(self.name, graph, graph.params[name], choice)
            for name, choice in choices.items()
            if choice.kind not in ("frozen", LORA)
        }
        if all(choice == FROZEN for choice in choices.values()):
            raise SchemeError(
                f"scheme {self.name}: it freezes every parameter; nothing would train"
            )
        return trained

    def choices(self, graph: Graph) -> dict[str, ParamChoice]:
        """The choice of each trainable param of `graph`, in the graph's order."""
        return {
            name: self._training_of(name) for name, param in graph.params.items() if param.trainable
        }

    def _training_of(self, name: str) -> ParamChoice:
        matches = [
            training for pattern, training in self.rules if fnmatch.fnmatchcase(name, pattern)
        ]
        return matches[-1] if matches else self.default


def load_scheme(path: Path) -> Scheme:
    """Read a scheme file; SchemeError names the file and the fault."""
    try:
        table = read_toml(path)
    except (OSError, ValueError) as error:
        raise SchemeError(f"scheme file {path}: {reason_of(error)}") from error
    unknown = sorted(set(table) - {"default", "params"})
    params = table.get("params", {})
    if unknown or not isinstance(params, Mapping):
        raise SchemeError(f"scheme file {path}: unknown {unknown}; it holds `default` and [params]")
    where = f"scheme file {path}"
    rules = tuple((name, parse_choice(value, f"{where}: {name}")) for name, value in params.items())
    default = parse_choice(table.get("default", "frozen"), f"{where}: default")
    return Scheme(path.stem, rules, default)


def save_scheme(scheme: Scheme, path: Path, comment: str = "") -> None:
    """Write a scheme atomically, as a file that `load_scheme` reads back.

    `comment` is written before it, line by line. SchemeError if the file cannot be written.
    """
    try:
        write_text_whole(path, _text_of(scheme, comment))
    except OSError as error:
        raise SchemeError(f"scheme file {path} cannot be written: {reason_of(error)}") from error


def _text_of(scheme: Scheme, comment: str) -> str:
    """Return the file's text; of rules with the same pattern only the last, which wins, is
    written.
    """
    last = {pattern: place for place, (pattern, _) in enumerate(scheme.rules)}
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    lines += [f"default = {_value(scheme.default)}", "", "[params]"]
    for place, (pattern, choice) in enumerate(scheme.rules):
        if last[pattern] == place:
            lines.append(f"{quote(pattern)} = {_value(choice)}")
    return "\n".join(lines) + "\n"


def _value(choice: ParamChoice) -> str:
    text = write_choice(choice)
    return quote(text) if choice.kind in SIMPLE else text


def channel_axis(scheme: str, graph: Graph, param: Param) -> int:
    """Axis along which some channels of this weight can train; SchemeError if there is none."""
    reader = channel_reader(graph.users(), param.value)
    if not isinstance(reader, ChannelReader):
        raise SchemeError(
            f"scheme {scheme}: {param.name} is read by {len(reader)} nodes, so a share of its "
            'channels cannot train; use "full" or "frozen"'
        )
    axis = reader.axis
    if axis is None:
        raise SchemeError(
            f"scheme {scheme}: {param.name} {param.value.type} has no channels to slice in "
            f'{reader.node.op}; use "full" or "frozen"'
        )
    return axis


def _channels(scheme: str, graph: Graph, param: Param, choice: ParamChoice) -> Channels:
    if choice.kind == "full":
        return None
    axis = channel_axis(scheme, graph, param)
    count = param.value.shape[axis]
    if choice.kind == "share":
        seed = (choice.seed, zlib.crc32(param.name.encode()))  # a separate draw for each weight
        ranking = rank(param.contents, axis, choice.by, seed)
        return channel_set(ranking[: channel_count(count, choice.share)], count)
    last = choice.channels[-1] - (choice.kind == "range")
    if last >= count:
        raise SchemeError(
            f"scheme {scheme}: {param.name} has {count} channels; {choice} is outside"
        )
    listed = range(*choice.channels) if choice.kind == "range" else choice.channels
    return channel_set(listed, count)


def _unknown(scheme: str, pattern: str, names: Iterable[str]) -> SchemeError:
    close = difflib.get_close_matches(pattern, list(names), n=3)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return SchemeError(f"scheme {scheme}: {pattern!r} matches no parameter of the model{hint}")
