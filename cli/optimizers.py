"""Optimizers on the command line: sgd:momentum=0.9."""

from dataclasses import fields
from typing import Any

import click

from pockengine.compiler.optim import NAMED, Optimizer


def read_optimizer(text: str) -> Optimizer:
    """Parse an optimizer with non-default settings: sgd:momentum=0.9."""
    name, _, settings = text.partition(":")
    if name.lower() not in NAMED:
        raise click.BadParameter(f"{name!r} is none of {', '.join(NAMED)}")
    kind = NAMED[name.lower()]
    known = {one.name: one.default for one in fields(kind) if isinstance(one.default, _WRITTEN)}
    values = {}
    for part in filter(None, settings.split(",")):
        key, _, number = part.partition("=")
        if key not in known:
            raise click.BadParameter(f"{name} has no {key!r}; it has {', '.join(known)}")
        try:
            values[key] = _like(known[key], number)
        except ValueError as error:
            raise click.BadParameter(f"{part!r} must read {key}={_text(known[key])}") from error
    made: Optimizer = kind(**values)
    return made


def _like(default: Any, text: str) -> Any:
    """Parse a number, a bool, a word, or numbers separated by dashes, by the default's type."""
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if isinstance(default, tuple):
        parts = tuple(map(float, text.split("/")))
        if len(parts) != len(default):
            raise ValueError(text)
        return parts
    return text if isinstance(default, str) else type(default)(text)


_WRITTEN = (bool, int, float, str, tuple)
"""Types of settings that the command line supports: no nested optimizers."""


def _text(default: Any) -> str:
    if isinstance(default, tuple):
        return "/".join(f"{part:g}" for part in default)
    if isinstance(default, str):
        return default
    return str(default).lower() if isinstance(default, bool) else f"{default:g}"
