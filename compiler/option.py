"""Fields of options, with what the command line says of each."""

from dataclasses import Field, field
from typing import Any


def option(default: Any, help: str = "", *, flag: str | None = None, **more: Any) -> Any:
    """Return a field that commands offer as an option: by `flag`, or by the field's own name.

    A `default` that is callable makes the default. A field without `help` is for Python alone.
    """
    metadata = {"help": help, "flag": flag, **more}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def flag_of(part: "Field[Any]") -> str:
    """Return what the command line calls a field."""
    return part.metadata["flag"] or f"--{part.name.replace('_', '-')}"
