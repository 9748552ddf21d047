"""Dataclass fields that are also command-line options."""

from dataclasses import Field, field
from typing import Any


def option(default: Any, help: str = "", *, flag: str | None = None, **more: Any) -> Any:
    """Return a field that commands offer as an option: `flag`, or the field's own name.

    A callable `default` is a default factory. A field without `help` is not offered on the command
    line.
    """
    metadata = {"help": help, "flag": flag, **more}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def flag_of(part: "Field[Any]") -> str:
    """Return a field's command-line name."""
    return part.metadata["flag"] or f"--{part.name.replace('_', '-')}"
